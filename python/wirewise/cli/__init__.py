# SPDX-License-Identifier: Apache-2.0
"""The `wirewise` command: one module a verb, and the guard through which every error leaves the process."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import typer

import wirewise
from wirewise import ending
from wirewise.cli import utf8
from wirewise.cli.outputs import check_commands
from wirewise.errors import InputError, ToldError, UnfinishedError, WirewiseError, did_you_mean, of_system
from wirewise.text import harmless

_EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 bad input or usage, 3 a privilege, kernel feature or tool is missing, "
    "4 refused by the kernel verifier."
)
_VERBS = (
    "features",
    "preset",
    "record",
    "datasets",
    "models",
    "train",
    "importance",
    "search",
    "import_model",
    "compile",
    "emit",
    "inspect",
    "evaluate",
    "explain",
    "second",
    "traffic",
    "demo",
)

app = typer.Typer(
    name="wirewise",
    help="Turn trees and small neural networks into eBPF programs: from packets to a bundle for `wirewised`.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"wirewise {wirewise.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


for _verb in _VERBS:
    import_module(f"wirewise.cli.{_verb}").register(app)
check_commands(app)


def run() -> None:
    """The process called `wirewise`."""
    ending.install()
    utf8.ensure()
    main()


def main() -> None:
    """Runs the command line. Every error ends here: one line on standard error (JSON with --json) and an exit
    code.
    """
    try:
        code = app(standalone_mode=False)  # errors are ours to print
        _leave_if_ended()  # typer makes an exit code of an interruption
        if isinstance(code, int):
            sys.exit(code)
    except UnfinishedError as error:
        ending.leave(harmless(" ".join(str(error).split())))
    except ToldError as error:
        _leave_if_ended()
        sys.exit(error.exit_code)
    except WirewiseError as error:
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        ending.leave()
    except BrokenPipeError:  # `wirewise inspect ... | head`
        # Nothing may flush into the closed pipe.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        sys.exit(0)
    except Exception as error:
        if hasattr(error, "format_message"):  # of the library that reads the command line, whichever it is
            _refuse_usage(error)
        if os.environ.get("WIREWISE_DEBUG"):
            raise
        if isinstance(error, OSError) and (told := of_system(error)):
            _fail(str(told), told.exit_code)
        _fail(
            f"unexpected {type(error).__name__}: {error}; this is a bug in wirewise, please report it with "
            "what WIREWISE_DEBUG=1 prints",
            1,
        )


def _refuse_usage(error: Any) -> NoReturn:
    """What is wrong with the command line, in one line; without any arguments, the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(InputError.exit_code)
    message = error.format_message().rstrip(".")
    option = getattr(error, "option_name", "")
    if context and type(error).__name__ == "NoSuchOption":
        message = f"there is no option {option}"
        known = [name for parameter in context.command.get_params(context) for name in parameter.opts]
        message += f"; {did_you_mean(option, known)}".removesuffix("; ")
    message = message.replace(". Did you mean", "; did you mean").strip(" ;")
    command = context.command_path if context else "wirewise"
    _fail(f"{message}{'' if message.endswith('?') else ';'} see `{command} --help`", InputError.exit_code)


def _leave_if_ended() -> None:
    """After a signal, other errors are only what it did to processes and libraries."""
    if ending.came():
        ending.leave()


def _fail(message: str, code: int) -> NoReturn:
    _leave_if_ended()
    said = harmless(" ".join(message.split()))
    if "--json" in sys.argv[1:]:  # as `wirewised` does
        print(
            json.dumps({"error": {"message": said, "exit_code": code}}, ensure_ascii=False), file=sys.stderr
        )
    else:
        print(f"error: {said}", file=sys.stderr)
    sys.exit(code)
