"""The expected state: every version of every source that was sent, and which of them was acknowledged last."""

import random
from dataclasses import dataclass, field

WORDS = tuple(
    """anchor basin barge berth boiler bolt bracket breaker bridge bucket cable canal cargo cellar chain channel
    clamp cloud compass copper crane crate current deck diesel dock drill engine fender ferry filter flange float
    fog fuel funnel gasket gate gauge gravel grease gull hammer harbour hatch hawser hinge hull ice island jetty
    keel ladder lamp lantern latch lever lock mast meter moor motor net oil paddle pier pilot pipe piston plank
    pontoon port pressure propeller pulley pump quay radio rail rain reef ribbon rigging rivet rope rudder rust
    sail salt screw sensor shaft shore signal silt slipway sluice spring steam steel storm strap tank tide timber
    torch tow trawler tunnel turbine valve vent vessel warehouse wave weather weir wharf whistle winch wind""".split()  # noqa: SIM905
)
LONG = 400
SHORT = 40


@dataclass(frozen=True, slots=True)
class Version:
    """One text of a source; its marker stands in no other."""

    marker: str
    content: str


@dataclass(slots=True)
class ExpectedSource:
    """One source: the version that is known to be stored, and those sent since, of which any may be."""

    source: str
    stored: Version | None = None
    document_id: str | None = None
    sent: list[Version] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Markers that must not be found any more."""

    def acknowledge(self, version: Version, document_id: str) -> None:
        """This version is the newest that is stored for certain."""
        if self.stored is not None and self.stored != version:
            self.replaced.append(self.stored.marker)
        self.stored, self.document_id = version, document_id
        self.replaced.extend(other.marker for other in self.sent if other != version)
        self.sent.clear()


def compose(source: str, number: int, rng: random.Random) -> Version:
    """A new text, of one chunk or of several, unlike any other in its words."""
    marker = f"{source}v{number}"
    words = rng.choices(WORDS, k=LONG if rng.random() < 0.15 else SHORT)
    sentences = [" ".join(words[start : start + 10]).capitalize() + "." for start in range(0, len(words), 10)]
    return Version(marker, f"The entry {marker} is about this. " + " ".join(sentences))
