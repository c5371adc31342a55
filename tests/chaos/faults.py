"""A shim under every write: it counts them, and at a chosen one the disk fails, is full, or the process is killed."""

import builtins
import errno
import io
import os
import signal
import tempfile

KINDS = ("error", "full", "kill")


class Faults:
    """What happens at which write.

    Args:
        kind: `error` (this write fails), `full` (this and all later ones find no space), `kill`, or None to count.
        number: Which write it is, from 1.
        below: Only files below this folder count.
    """

    def __init__(self, kind, number, below):
        self.kind, self.number, self.below = kind, number, os.path.realpath(below)
        self.num_writes = 0

    def install(self):
        """Put the shim under all that writes, for the rest of this process."""
        for module, name in (
            (os, "replace"),
            (os, "rename"),
            (os, "mkdir"),
            (tempfile, "mkstemp"),
            (tempfile, "mkdtemp"),
        ):
            setattr(module, name, self._before(getattr(module, name)))
        os.fsync = self._before(os.fsync, always=True)
        for module in (io, builtins):
            module.open = self._opening(module.open)

    def strike(self, partly=None):
        """Count a write, and let happen what was chosen; `partly` writes half of it first."""
        self.num_writes += 1
        if self.kind is None or self.num_writes < self.number:
            return
        if self.num_writes > self.number and self.kind != "full":
            return
        if partly is not None:
            partly()
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = errno.ENOSPC if self.kind == "full" else errno.EIO
        raise OSError(code, os.strerror(code))

    def _is_ours(self, path):
        return isinstance(path, str | os.PathLike) and os.path.realpath(path).startswith(self.below)

    def _before(self, real, always=False):
        def call(*args, **options):
            where = options.get("dir") or (args[0] if args else None)
            if always or self._is_ours(where):
                self.strike()
            return real(*args, **options)

        return call

    def _opening(self, real):
        def call(file, mode="r", *args, **options):
            stream = real(file, mode, *args, **options)
            return _Stream(stream, self) if set(mode) & set("wax+") and self._is_ours(file) else stream

        return call


class _Stream:
    """A file whose writes are counted; what it has not written yet is written before a kill, as half of the rest."""

    def __init__(self, stream, faults):
        self._stream, self._faults = stream, faults

    def write(self, content):
        def half():
            self._stream.write(content[: len(content) // 2])
            self._stream.flush()

        self._faults.strike(half)
        return self._stream.write(content)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __enter__(self):
        self._stream.__enter__()
        return self

    def __exit__(self, *error):
        return self._stream.__exit__(*error)
