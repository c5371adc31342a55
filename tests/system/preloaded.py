"""Run commands in copies of a process that has imported the libraries already.

Starting `python -m tercet` takes seconds, nearly all of them imports; a copy starts in milliseconds. It is a process of
its own all the same, with its own working folder, files, exit code and end.

usage: preloaded.py MODEL, a folder that is loaded once so that what the libraries import late is there too. Reads JSON
objects from standard input, a line each, and answers with the process id and then with the exit code, a line each.
A first line says that it is ready.
"""

import gc
import json
import os
import resource
import runpy
import sys
import traceback
from importlib import import_module

MODULES = [
    "accelerate.state",
    "pyarrow.parquet",
    "pydantic.main",
    "rich.progress",
    "tercet.cli",
    "tercet.vectors.embed",
    "tercet.training.pipeline",
    "tercet.vectors.search",
    "tercet.synthesis.synthesizer",
    "transformers.generation.utils",
]


def become(*, args, folder, stdin, stdout, stderr, max_file_bytes):
    """Turn this process into `python -m tercet ARGS`, and end it."""
    for descriptor, (file, mode) in enumerate([(stdin, os.O_RDONLY), (stdout, os.O_WRONLY), (stderr, os.O_WRONLY)]):
        os.dup2(os.open(file, mode), descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8")  # the old one has read ahead
    os.chdir(folder)
    if max_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    sys.argv = ["tercet", *args]
    code = 0
    try:
        runpy.run_module("tercet", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking down everything that is imported would take longer than most commands


def serve():
    """Run the commands that are asked for, one after another."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(**json.loads(line))
        os.write(1, f"{pid}\n".encode())
        os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


if __name__ == "__main__":
    for name in MODULES:
        import_module(name)
    _ = import_module("tercet").Encoder.load(sys.argv[1]).tower
    gc.freeze()  # so that copies share this memory
    os.write(1, b"ready\n")
    serve()
