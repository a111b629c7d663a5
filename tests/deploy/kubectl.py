"""The program itself: standard library only, one call a process, its memory in the folder KUBECTL_FOLDER."""

import json
import os
import re
import signal
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["KUBECTL_FOLDER"])
OBJECTS, FACTS = FOLDER / "objects.json", FOLDER / "facts.json"


def option(words: list[str], name: str, otherwise: str = "") -> str:
    for at, word in enumerate(words):
        if word == name:
            return words[at + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return otherwise


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def fields(item: dict[str, Any]) -> dict[str, str]:
    pairs = re.findall(r"(?m)^  (\w+): (\S+)$", item["text"].partition("kind:")[0])
    return {key: b64decode(value).decode() for key, value in pairs}


class Call:
    def __init__(self, words: list[str]) -> None:
        self.context, self.namespace = option(words, "--context"), option(words, "--namespace")
        while words[0] in {"--context", "--namespace"}:
            words = words[2:]
        self.words = words
        self.objects, self.facts = load(OBJECTS), load(FACTS)
        self.changed: list[str] = []
        self.applied = ""
        self.is_recorded = False

    def run(self) -> int:
        if self.facts.get("down"):
            print("The connection to the server was refused", file=sys.stderr)
            return 1
        status = getattr(self, self.words[0].replace("-", "_"), self.unknown)()
        OBJECTS.write_text(json.dumps(self.objects))
        return int(status)

    def record(self) -> None:
        if self.is_recorded:
            return
        self.is_recorded = True
        reported = ("words", "context", "namespace", "changed", "applied")
        with (FOLDER / "calls.jsonl").open("a") as file:
            file.write(json.dumps({name: getattr(self, name) for name in reported}) + "\n")

    def unknown(self) -> int:
        print(f"this kubectl does not know {self.words}", file=sys.stderr)
        return 3

    def get(self) -> int:
        output = option(self.words, "--output")
        names = [word for word in self.words[1:] if "/" in word and word not in output]
        if self.words[1] == "secret":
            names = [f"secret/{self.words[2]}"]
        found = [(name, self.objects[name]) for name in names if name in self.objects]
        if output.startswith("go-template="):
            for _, item in found:
                print("".join(f"{key}={value}\n" for key, value in sorted(fields(item).items())), end="")
        elif "resourceVersion" in output:
            print("".join(f"-{item['version']}" for _, item in found), end="")
        elif "replicas" in output:
            print("".join(str(item["replicas"]) for _, item in found), end="")
        elif self.words[1] == "pods":
            app = option(self.words, "--selector").partition("=")[2]
            print("pod/one" if app in self.facts.get("endless", []) else "", end="")
        elif output == "name":
            print("".join(f"{name}\n" for name, _ in found), end="")
        else:
            return self.unknown()
        return 0

    def create(self) -> int:
        if self.words[1:3] != ["secret", "generic"] or "--dry-run=client" not in self.words:
            return self.unknown()
        lines = sorted(sys.stdin.read().splitlines())
        data = "".join(
            f"  {line.partition('=')[0]}: {b64encode(line.partition('=')[2].encode()).decode()}\n" for line in lines
        )
        print(f"apiVersion: v1\ndata:\n{data}kind: Secret\nmetadata:\n  name: {self.words[3]}")
        return 0

    def apply(self) -> int:
        self.applied = sys.stdin.read()
        for text in re.split(r"(?m)^---$", self.applied):
            kind, own = (re.findall(rf"(?m)^{key}: (\S+)$", text)[0] for key in ("kind", "  name"))
            name = f"{kind.lower()}/{own}"
            replicas = re.findall(r"(?m)^  replicas: (\d+)$", text)
            old = self.objects.get(name, {"text": "", "version": 0, "replicas": 1})
            wanted = int(replicas[0]) if replicas else old["replicas"]
            if (text.strip(), wanted) != (old["text"].strip(), old["replicas"]):
                self.changed.append(name)
                self.objects[name] = {"text": text.strip(), "version": old["version"] + 1, "replicas": wanted}
            print(f"{name} serverside-applied")
        return 0

    def scale(self) -> int:
        replicas = int(option(self.words, "--replicas"))
        if self.objects[self.words[1]]["replicas"] != replicas:
            self.objects[self.words[1]]["replicas"] = replicas
            self.changed.append(f"{self.words[1]}={replicas}")
        return 0

    def rollout(self) -> int:
        name = self.words[2].partition("/")[2]
        if name in self.facts.get("broken", []):
            print("error: timed out waiting for the condition", file=sys.stderr)
            return 1
        print(f'deployment "{name}" successfully rolled out')
        return 0

    def wait(self) -> int:
        return int(option(self.words, "--selector").partition("=")[2] in self.facts.get("endless", []))

    def port_forward(self) -> int:
        if not self.facts.get("port"):
            print("error: unable to forward port because pod is not running", file=sys.stderr)
            return 1
        # The script may end, and a test look at the calls, before this process has ended.
        (FOLDER / "forwarding").write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        self.record()
        print(f"Forwarding from 127.0.0.1:{self.facts['port']} -> 3000", flush=True)
        print(f"Forwarding from [::1]:{self.facts['port']} -> 3000", flush=True)
        signal.pause()
        return 0


def main() -> int:
    call = Call(sys.argv[1:])
    try:
        return call.run()
    finally:
        call.record()


if __name__ == "__main__":
    sys.exit(main())
