# SPDX-License-Identifier: Apache-2.0
"""Ready models: trained, measured, and named `@NAME` wherever a model or a bundle is taken.

Each is a model file (integers, the feature set, how it was trained) and a card, written by `make models`
(scripts/models.py). Neither is compiled: a bundle is made of it where it is first asked for, so that it fits
the wirewise and the compiler that are there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wirewise.errors import InputError, choose
from wirewise.registry import Registry

if TYPE_CHECKING:
    from wirewise.compiler import Compiled
    from wirewise.formats.bundle import Bundle
    from wirewise.formats.training_file import TrainingRecord

SIGN = "@"
HERE = Path(__file__).parent
KEY = "ready"
"""In the facts of a training: what the agent knows such a bundle by."""


@dataclass(frozen=True)
class Ready:
    """A ready model. doc : what it finds. use : what it is for, and how. blind : what it cannot see. wish :
    share of benign flows that may lose a packet, which its margin is for; None: its classes are no
    attacks.
    """

    name: str
    doc: str
    use: str
    blind: str
    wish: float | None

    @property
    def file(self) -> Path:
        """The model file."""
        return HERE / f"{self.name.removeprefix(SIGN)}.json"

    @property
    def card(self) -> str:
        """What is known of it, as Markdown."""
        return self.file.with_suffix(".md").read_text(encoding="utf-8")

    def record(self) -> TrainingRecord:
        """How it was trained, which every bundle of it keeps, with what it is for."""
        from wirewise.formats import training_file

        record = training_file.read(self.file)
        assert record is not None, "`make models` writes one"
        about = {"name": self.name, "use": self.use, "cannot_see": self.blind}
        return replace(record, training=record.training | {KEY: about})


READY: Registry[Ready] = Registry("ready model", lambda model: model.name)
_WEB = (
    "Single web requests look benign to flow statistics: put Suricata behind. So do logins that are guessed "
    "slowly, and everything inside an ordinary-looking connection."
)
READY.add(
    Ready(
        "@flood",
        "floods of SYNs, UDP and ICMP, amplification, scans of ports and hosts",
        "For an interface that receives what servers or hosts are sent. It reads the packet, and how many "
        "packets its destination received and its source sent in the last seconds: one packet of a flow is "
        "enough.",
        "A flood or a scan slower than one or two packets per second, floods of HTTP requests over complete "
        "connections, and attacks through a proxy or NAT that many share. While a host is flooded, new "
        f"connections to it look like the flood. {_WEB}",
        0.005,
    )
)
READY.add(
    Ready(
        "@intrusion",
        "attack, flood or benign, by the conversation, its destination and source, and how both did before",
        "For an interface that sees both directions, such as a router's or a mirror port. Use it to count "
        "and to look closer, or to send flows to Suricata.",
        f"Most of what the table below says is found rarely. {_WEB}",
        0.01,
    )
)
READY.add(
    Ready(
        "@voip-or-bulk",
        "what a flow needs of the network: interactive, bulk, or video",
        "For steering, not for dropping: give each class a DSCP, a queue or a path (docs/policy.md).",
        "Traffic that is none of the three is called the nearest one, and the first packets of a flow say "
        "little. Flows inside one tunnel or VPN are one flow.",
        None,
    )
)


def find(name: str | os.PathLike[str]) -> Ready | None:
    """The ready model of a name that begins with @; None of another text. Raises InputError, which names what
    there is.
    """
    text = os.fspath(name)
    if not text.startswith(SIGN):
        return None
    if text not in READY:
        raise InputError(f"model {text!r}", "is not a ready one", choose(text, READY))
    return READY[text]


def compiled(model: Ready) -> Compiled:
    """A bundle of a ready model, with its own margin. Raises as `wirewise.compiler.compile` does."""
    from wirewise import compiler
    from wirewise.evaluate import out_of_fold
    from wirewise.formats import model_file

    loaded, record = model_file.read(model.file), model.record()
    point = None
    if model.wish is not None:
        point = out_of_fold.chosen(record.training, loaded.model, None, model.wish, 1)
    return compiler.compile(
        loaded.model, record.feature_set, name=model.name.removeprefix(SIGN), classes=loaded.classes,
        operating_point=point, training=record.training, accuracy=record.accuracy,
        reference=loaded.reference,
    )  # fmt: skip


def bundle(name: str | os.PathLike[str], folder: Path | None = None) -> Path:
    """The bundle of a name that begins with @, compiled unless this wirewise has done so; any other path as
    it is.

    folder : where it is kept; None: $XDG_CACHE_HOME/wirewise, or ~/.cache/wirewise. Raises InputError for an
    unknown name.
    """
    from wirewise.formats.bundle import Bundle

    model = find(name)
    if model is None:
        return Path(name)
    cache = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wirewise"
    path = cache / f"{model.name.removeprefix(SIGN)}.wirewise"
    try:
        kept = Bundle.read(path)
    except InputError:  # none, of another version, or damaged
        kept = None
    if kept is None or not _is_of(kept, model):
        made = compiled(model)
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                str(cache), f"cannot be made: {error.strerror}", "name another folder in XDG_CACHE_HOME"
            ) from error
        made.write(path)
    return path


def _is_of(kept: Bundle, model: Ready) -> bool:
    """Whether a bundle is what this wirewise would make of a model, but for the compiler."""
    from wirewise import rebuild

    if kept.manifest.training != model.record().training:
        return False
    try:
        rebuild.compare(model.name, kept)
    except InputError:
        return False
    return True
