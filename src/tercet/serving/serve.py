"""The verb `serve`: a server on a port, from its checks to its end."""

import contextlib
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tercet.encoder.choice import Model, ModelSettings, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.errors import InputError, OutputError, SettingError
from tercet.serving.limits import Limits
from tercet.storage.choices import DEFAULT_MODEL, OnTruncate, check_choice
from tercet.storage.extras import require
from tercet.storage.settings import checked

if TYPE_CHECKING:
    from types import FrameType

_MAX_CONNECTIONS = 4096


def serve(
    models: "Model | Sequence[str] | Mapping[str, Model]" = DEFAULT_MODEL,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    precision: str = "exact",
    on_truncate: OnTruncate = "count",
    api_key: str | None = None,
    api_key_file: str | Path | None = None,
    no_auth: bool = False,
    cors: Sequence[str] = (),
    max_queue: int = 8192,
    max_queue_tokens: int = 524_288,
    max_batch_tokens: int = 2048,
    max_body: int = 8_388_608,
    timeout: float = 120,
    client_timeout: float = 30,
    drain: float = 30,
    access_log: bool = True,
) -> None:
    """Serve encoders over HTTP until SIGTERM or Ctrl-C: OpenAI's embeddings, similarities, rankings, and a page.

    Args:
        models: An encoder; names of several; or a mapping of what requests call them to what they are.
        host: Which address it listens at; others than this machine's own need a key.
        port: Which port; 0 for one that is free.
        precision: What is computed in; see `embed`.
        on_truncate: Texts that are too long are counted in the answer (`count`) or refused (`error`).
        api_key: What a request must have in `Authorization: Bearer`.
        api_key_file: A file with such keys, one per line.
        no_auth: Whether no key is needed even where others than this machine can ask.
        cors: Web pages of which origins may ask (`https://example.org`).
        max_queue: The most texts that wait, per model; further requests get a 429.
        max_queue_tokens: The most tokens that wait, per model.
        max_batch_tokens: The most tokens that are computed at once.
        max_body: The largest body of a request, in bytes; larger ones get a 413.
        timeout: Seconds until a request is given up that was not computed.
        client_timeout: Seconds that a client may take to send a request, or stop reading the answer.
        drain: Seconds that requests under way may take to end after SIGTERM.
        access_log: Whether each request is one line of JSON on standard output, without its texts.

    Raises:
        SettingError: A setting does not fit, or a key is missing.
        ModelError: A model cannot be found or read.
        OutputError: The port cannot be taken.
    """
    uvicorn = _require_all()
    check_choice("on_truncate", on_truncate, OnTruncate)
    limits = _limits(max_queue, max_queue_tokens, max_batch_tokens, max_body, timeout, client_timeout, drain)
    if not 0 <= port <= 65_535:
        raise SettingError(f"port {port}: there is none. Take 1 to 65535, or 0 for one that is free.")
    local = _is_loopback(host)
    keys = _read_keys(api_key, api_key_file)
    if not (keys or local or no_auth):
        raise SettingError(
            f"host {host}: others than this machine could ask. Give an API key (--api-key-file), or --no-auth."
        )
    with _listening(host, port) as listener:
        from tercet.serving.app import make_app
        from tercet.serving.protocol import configure

        encoders = _load(models)
        app = make_app(
            encoders,
            precision=precision,
            on_truncate=on_truncate,
            limits=limits,
            api_keys=keys,
            cors=cors,
            local=local and not keys,
        )
        options = configure(app, client_timeout_s=client_timeout, drain_s=drain, max_connections=_MAX_CONNECTIONS)
        with _logging(access_log), _stopping_quietly(), _many_files():
            server = uvicorn.Server(uvicorn.Config(**options))
            sys.stderr.write(_greeting(encoders, host, listener.getsockname()[1]))
            sys.stderr.flush()
            server.run(sockets=[listener])


def _require_all() -> Any:
    for module in ("starlette", "prometheus_client", "orjson"):
        require(module, "serve")
    return require("uvicorn", "serve")


def _limits(*values: float) -> Limits:
    fields = ("max_queue", "max_queue_tokens", "max_batch_tokens", "max_body_bytes", "timeout_s", "client_timeout_s")
    given = dict(zip((*fields, "drain_s"), values, strict=True))
    for name, value in given.items():
        if value <= 0:
            raise SettingError(f"{name} {value}: is not more than nothing. Give a positive number.")
    return checked(Limits, given)


def _load(models: "Model | Sequence[str] | Mapping[str, Model]") -> dict[str, Encoder]:
    if isinstance(models, Mapping) and not isinstance(models.get("model"), str | Path):
        named: dict[str, Model] = dict(models)
    elif isinstance(models, Sequence) and not isinstance(models, str):
        named = {_name(each): each for each in models}
        if len(named) < len(models):
            raise SettingError(f"models {', '.join(models)}: two have one name. Name them: NAME=MODEL.")
    else:
        named = {_name(models): models}
    if not named:
        raise SettingError("models: there is none. Name at least one.")
    return {name: load_encoder(model) for name, model in named.items()}


def _name(model: "Model") -> str:
    """Return what requests call a model: its hub id or embedded name, or the last part of its folder."""
    if isinstance(model, Encoder):
        return model.name or "encoder"
    name = model["model"] if isinstance(model, Mapping) else model.model if isinstance(model, ModelSettings) else model
    folder = Path(str(name)).expanduser()
    return folder.resolve().name if folder.is_dir() else str(name)


def _read_keys(api_key: str | None, file: str | Path | None) -> list[str]:
    keys = [] if api_key is None else [api_key]
    if file is not None:
        try:
            keys += [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: the API keys cannot be read ({error}). Give a text file.") from error
    if (file is not None or api_key is not None) and not all(keys or [""]):
        raise SettingError("api_key: is empty. Give a key of some length.")
    return keys


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket with the port taken, before any model is loaded; uvicorn listens at it."""
    listener = None
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(kind, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise OutputError(f"{host}:{port}: cannot be listened at ({error}). Take another --port or --host.") from error
    with listener:
        yield listener


def _greeting(encoders: Mapping[str, Encoder], host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(f"{name} ({encoder.dim} dimensions)" for name, encoder in encoders.items())
    address = f"http://{shown}:{port}"
    return f"Serving {names} at {address}\nAPI: {address}/docs. Stop with Ctrl-C.\n"


@contextlib.contextmanager
def _logging(access_log: bool) -> Iterator[None]:
    """Have each request logged as a line of JSON on standard output, and uvicorn be silent about bad requests."""
    access, handler = logging.getLogger("tercet.serving.access"), logging.StreamHandler(sys.stdout)
    before = access.level, access.propagate
    access.propagate = False
    if access_log:
        access.setLevel(logging.INFO)
        access.addHandler(handler)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        yield
    finally:
        access.removeHandler(handler)
        access.level, access.propagate = before


@contextlib.contextmanager
def _stopping_quietly() -> Iterator[None]:
    """Let the function return after a signal: uvicorn sends it again when it has drained."""

    def ignore(_signal: int, _frame: "FrameType | None") -> None:
        pass

    try:
        before = {each: signal.signal(each, ignore) for each in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, where uvicorn leaves signals alone, too
        before = {}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def _many_files() -> Iterator[None]:
    """Allow as many open files as there may be connections, where the system has such a limit."""
    try:
        import resource
    except ImportError:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * _MAX_CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
