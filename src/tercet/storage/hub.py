"""The hub: its libraries, imported late; commits; errors in our words."""

import contextlib
import os
from collections.abc import Iterator

from tercet.errors import InputError, TercetError
from tercet.storage.extras import require


@contextlib.contextmanager
def no_bars() -> Iterator[None]:
    """Hide the bars of the hub's libraries while the block runs."""
    import huggingface_hub

    libraries = (require("datasets", "hub"), huggingface_hub.utils)
    shown = [library for library in libraries if not library.are_progress_bars_disabled()]
    for library in shown:
        library.disable_progress_bars()
    try:
        yield
    finally:
        for library in shown:
            library.enable_progress_bars()


def commit_of(name: str, revision: str | None) -> str:
    """Return the commit that a revision of a dataset is now; the newest where None.

    Raises:
        InputError: The hub or the network did not tell.
    """
    import huggingface_hub

    with hub_errors(name, revision):
        return str(huggingface_hub.HfApi().dataset_info(name, revision=revision).sha)


@contextlib.contextmanager
def hub_errors(
    name: str,
    revision: str | None = None,
    *,
    kind: str = "dataset",
    raised: type[TercetError] = InputError,
    fix: str = "Check the network and the name, and start again.",
) -> Iterator[None]:
    """Turn what the hub's libraries say into an error of ours.

    Args:
        name: What is asked for.
        revision: The branch, tag or commit of it.
        kind: What it is called: a dataset, a model.
        raised: The error.
        fix: What to do where the name may be wrong.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        yield
    except HFValidationError as error:
        raise raised(f"{name}: is no id of a {kind} on the hub ({error}). {fix}") from error
    except GatedRepoError as error:
        raise raised(f"{name}: the hub wants a login for it. Accept its terms there and run: hf auth login") from error
    except RepositoryNotFoundError as error:
        raise raised(f"{name}: no {kind} of that name on {endpoint}. {fix}") from error
    except RevisionNotFoundError as error:
        raise raised(f"{name}: has no revision {revision!r}. Name a branch, tag or commit of it.") from error
    except Exception as error:  # the client's own errors, and those of its network and file format libraries
        reason = str(error).partition("\n")[0]
        raise raised(f"{name}: not on this machine, and {endpoint} did not give it ({reason}). {fix}") from error
