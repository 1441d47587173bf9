"""Text -> the same text without anything personal, for records and reports.

What counts as personal: host and user name, home folder, serial numbers, UUIDs
(GPU-, MIG- and plain), MAC, IPv4 and IPv6 addresses, e-mail addresses, SSH keys and
the values of secret-looking environment variables.
"""

from __future__ import annotations

import functools
import getpass
import os
import platform
import re
from pathlib import Path
from typing import Any

# Words of the records themselves. A host called "cpu" must not make them unreadable.
VOCABULARY_KEYS = frozenset(
    "format schema suite source backend device kind profile work_unit answer verdict "
    "name created gpu_lab python exercise state edition".split()
)
# Names so common that replacing them would spoil ordinary words and hide nobody.
COMMON_NAMES = frozenset(
    "root user admin runner ubuntu debian fedora localhost jovyan colab".split()
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|AUTH", re.I)
_HEX = "[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.S,
        ),
        "<ssh-key>",
    ),
    (
        re.compile(r"\b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-[\w-]+|sk-[\w@.-]+)\s+AAAA\S+"),
        "<ssh-key>",
    ),
    (re.compile(rf"\b(GPU|MIG|MIG-GPU)-{_UUID}(?:/\d+/\d+)?"), r"\1-<uuid>"),
    (re.compile(rf"\b{_UUID}\b"), "<uuid>"),
    (
        re.compile(
            r"(?i)\b(serial(?:[ _-]?(?:number|no|nr))?\.?\s*(?:[:=]|\bis\b)\s*)"
            r"[\"']?(?!n/a\b|<)[\w./-]+"
        ),
        r"\1<serial>",
    ),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<e-mail>"),
    (re.compile(rf"(?<![\w:-])(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}(?![\w:-])"), "<mac>"),
    # Four numbers with a name and == in front are a version (cuDNN has four).
    (
        re.compile(
            r"(?<![\w.=-])(?!127\.0\.0\.1\b|0\.0\.0\.0\b)"
            r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.]|\.\d)"
        ),
        "<ipv4>",
    ),
    # At least one "::" or seven colons: a PCI address (0000:01:00.0) has neither.
    (
        re.compile(
            rf"(?<![\w:.])(?:(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}"
            rf"|(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})::"
            rf"(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})?)(?:%\w+)?(?![\w:])"
        ),
        "<ipv6>",
    ),
    (re.compile(r"(?i)([a-z]:\\users\\)[^\\/\s\"':]+"), r"\1<user>"),
    (re.compile(r"(/(?:home|Users)/)(?!<)[^/\s\"':]+"), r"\1<user>"),
)


def text(value: str) -> str:
    """The text with personal parts replaced by <host>, <user>, <uuid> and so on."""
    for word, label in _personal_words():
        value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", label, value)
    return patterns(value)


def patterns(value: str) -> str:
    """The text with everything replaced that gives itself away by its form."""
    for pattern, label in _PATTERNS:
        value = pattern.sub(label, value)
    return value


def tree(value: Any, *, key: str = "") -> Any:
    """A JSON tree with every text redacted; words of our own vocabulary stay."""
    if isinstance(value, dict):
        return {k: tree(v, key=str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [tree(v, key=key) for v in value]
    if isinstance(value, str):
        return patterns(value) if key in VOCABULARY_KEYS else text(value)
    return value


def _personal_words() -> list[tuple[str, str]]:
    """Words of this machine and process to hide, longest first."""
    words = dict(_names_of_machine())
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 6:
            words[value] = "<secret>"
    return sorted(words.items(), key=lambda pair: -len(pair[0]))


@functools.cache
def _names_of_machine() -> tuple[tuple[str, str], ...]:
    found = [(str(Path.home()), "~")] if len(str(Path.home())) > 2 else []
    for name, label in ((platform.node(), "<host>"), (_user(), "<user>")):
        for word in {name, name.split(".")[0]}:
            if len(word) >= 3 and word.lower() not in COMMON_NAMES:
                found.append((word, label))
    return tuple(found)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no passwd entry, as in some containers
        return ""
