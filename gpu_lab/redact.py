"""Text -> the same text without anything personal, for records and reports.

What counts as personal: host and user name, home folder, serial numbers, UUIDs
(GPU-, MIG- and plain), MAC, IPv4 and IPv6 addresses, e-mail addresses, SSH keys,
tokens, passwords and the values of secret-looking environment variables.
"""

from __future__ import annotations

import functools
import getpass
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Words of the records themselves. A host called "quick" must not make them unreadable.
_VOCABULARY = (
    "format schema suite source backend device kind profile work_unit answer verdict "
    "name created gpu_lab python exercise state edition dtype counted"
)
VOCABULARY_KEYS = frozenset(_VOCABULARY.split())
# Names so common that replacing them would spoil ordinary words and hide nobody.
_COMMON = (
    "root user admin runner ubuntu debian fedora localhost jovyan colab host home "
    "nvidia amd intel apple linux windows cpu gpu cuda torch python jupyter"
)
COMMON_NAMES = frozenset(_COMMON.split())
NAME_VARIABLES = {
    "<host>": ("HOSTNAME", "COMPUTERNAME"),
    "<user>": ("USER", "LOGNAME", "USERNAME", "SUDO_USER"),
}
# What follows "versions" in a record and has this form is never an address.
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:\.?(?:a|b|rc|dev|post)\d+)*(?:\+[a-z0-9.]+)?")
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|AUTH|_(?:KEY|PASS|PWD|PAT)$", re.I
)
_HEX = "[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_GROUP = f"{_HEX}{{1,4}}"


def _unless_version(found: re.Match[str]) -> str:
    return found[0] if found["version"] else "<ipv4>"


_Label = str | Callable[[re.Match[str]], str]
_PATTERNS: tuple[tuple[re.Pattern[str], _Label], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.S,
        ),
        "<ssh-key>",
    ),
    # The comment behind a public key is most often user@host.
    (
        re.compile(
            r"(?:\b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-[\w-]+|sk-[\w@.-]+)\s+)?"
            r"\bAAAA[\w+/=]{16,}(?:[ \t]+[^\s@]+@\S+)?"
        ),
        "<ssh-key>",
    ),
    # Tokens that say by their first letters whose they are.
    (
        re.compile(
            r"\b(?:hf_|gh[opsru]_|github_pat_|glpat-|xox[abprs]-|npm_|pypi-|sk-)"
            r"(?=[\w-]*\d)[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w.-]+"
        ),
        "<secret>",
    ),
    (re.compile(r"(?i)\b(bearer\s+)(?=\S*\d)[\w.~+/=-]{8,}"), r"\1<secret>"),
    (re.compile(r"(?i)(\bauthorization:\s*\w+\s+)[^\s<]\S*"), r"\1<secret>"),
    # Numbers stay: "ms per token: 12.5" is a measurement.
    (
        re.compile(
            r"(?i)((?:token|secret|(?:api|access)[_-]?key|passw(?:or)?d)[\"']?\s*[=:]\s*"
            r"[\"']?)(?![\d.]+(?![\w.])|<)[^\s&\"',;]{4,}"
        ),
        r"\1<secret>",
    ),
    (re.compile(r"(?i)(\b[a-z][\w+.-]{0,30}://)[^\s/@]+@"), r"\1<secret>@"),
    (re.compile(rf"\b(GPU|MIG|MIG-GPU)-{_UUID}(?:/\d+/\d+)?"), r"\1-<uuid>"),
    (re.compile(rf"\b{_UUID}\b"), "<uuid>"),
    # nvidia-smi, dmidecode, ioreg and JSON; XML; lspci; lsusb. "serial: 12.5 s" stays.
    (
        re.compile(
            r"(?i)(serial(?:[ _-]?(?:number|no|nr))?\.?(?: \([^)\n]*\))?[\"']?\s*"
            r"(?:[:=]|\bis\b)\s*[\"']?|<serial>(?=\w)|serial number\s+(?=\S*\d)"
            r"|\bSN\s*[:#]?\s*(?=[A-Z]*\d)(?=[A-Z\d]{6})|\bs/n[\"']?\s*[:=]?\s*[\"']?|\bserial\s+(?=[A-Z]*\d)(?=\S{6})|\biserial\s+\d+\s+)"
            r"(?!n/a\b|\d+\.\d+\s|<)[\w./-]{4,}"
        ),
        r"\1<serial>",
    ),
    (
        re.compile(
            rf"[\w.+-]{{1,64}}@(?:(?:[\w-]+\.)+[A-Za-z]{{2,}}|{_OCTET}(?:\.{_OCTET}){{3}})"
        ),
        "<e-mail>",
    ),
    # Six pairs are a MAC address, more are the same idea (EUI-64, InfiniBand).
    (
        re.compile(
            rf"(?<!\w)(?<!\b{_HEX}{{2}}[:-])(?:{_HEX}{{2}}[:-]){{5,19}}{_HEX}{{2}}(?!\w)"
        ),
        "<mac>",
    ),
    (re.compile(r"\b(enx|wlx|wwx)[0-9a-f]{12}\b"), r"\1<mac>"),
    # Four numbers behind the name of an NVIDIA library or == are a version (cuDNN has
    # four), and so are those in front of -word (5.15.90.1-microsoft-standard-WSL2).
    (
        re.compile(
            r"(?i)(?P<version>\b(?:nvidia[-_][\w-]*|(?:lib)?cu(?:da|dnn|blas|fft|file|rand"
            r"|solver|sparse)\w*|version)[\s:=~<>!-]{0,30}\d+(?:\.\d+){3})"
            r"|(?<![\w.])(?<![=<>~!]=)(?!127\.0\.0\.1\b|0\.0\.0\.0\b)"
            rf"{_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\w|-[a-z])"
        ),
        _unless_version,
    ),
    # At least one "::" or seven colons: a PCI address (0000:01:00.0) has neither.
    # The first group has three digits or four, which C++ names (a::b, c10::) have not.
    (
        re.compile(
            rf"(?<![\w.])(?<!::)(?!c10:)(?=[\w:]*\d)(?:(?:{_GROUP}:){{7}}{_GROUP}"
            rf"|{_HEX}{{3,4}}(?::{_GROUP}){{0,6}}::{_GROUP}(?::{_GROUP}){{0,6}}"
            rf"|{_HEX}{{2,4}}(?::{_GROUP}){{1,6}}::)(?:%[\w.]+)?(?!\w|:{_HEX})"
        ),
        "<ipv6>",
    ),
    # Windows names may hold blanks; they end where the next folder begins.
    (
        re.compile(
            r"(?i)((?:[a-z]:)?\\{1,2}users\\{1,2})"
            r"(?:[^\\/\"':*?<>|\r\n]+(?=\\)|[^\\/\s\"':<]+)"
        ),
        r"\1<user>",
    ),
    (re.compile(r"(?i)(/(?:home|users|media)/)(?!<)[^/\s\"':]+"), r"\1<user>"),
)


def text(value: str) -> str:
    """The text with personal parts replaced by <host>, <user>, <uuid> and so on."""
    secrets = {v: "<secret>" for k, v in os.environ.items() if _is_secret(k, v)}
    for secret in sorted(secrets, key=len, reverse=True):  # inside words too
        value = value.replace(secret, "<secret>")
    value = _words(value, _home())
    # Names last: bob@<host>.org would no longer look like an address.
    return _words(patterns(value), dict(_names_of_machine()))


def patterns(value: str) -> str:
    """The text with everything replaced that gives itself away by its form."""
    for pattern, label in _PATTERNS:
        value = pattern.sub(label, value)
    return value


def tree(value: Any, *, key: str = "") -> Any:
    """A JSON tree with every text redacted; words of our own vocabulary stay."""
    if isinstance(value, dict):
        return {k: tree(v, key=_field(value, key, str(k))) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [tree(v, key=key) for v in value]
    if isinstance(value, str):
        if key == "versions" and _VERSION.fullmatch(value):
            return value
        return patterns(value) if key in VOCABULARY_KEYS else text(value)
    return value


def _field(owner: dict[Any, Any], key: str, name: str) -> str:
    """The field that decides: a device's name is free text, a version is none."""
    if key == "versions":
        return key
    return "device_name" if name == "name" and "backend" in owner else name


def _words(value: str, labels: dict[str, str]) -> str:
    """Replace whole words, in any case, the longest first."""
    if not labels:
        return value
    known = {word.lower(): label for word, label in labels.items()}
    either = "|".join(re.escape(w) for w in sorted(labels, key=len, reverse=True))
    return re.sub(
        rf"(?<![A-Za-z0-9<])(?:{either})(?![A-Za-z0-9])",
        lambda found: known.get(found[0].lower(), "<secret>"),
        value,
        flags=re.IGNORECASE,
    )


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and len(value) >= 6


def _home() -> dict[str, str]:
    try:
        home = str(Path.home())
    except RuntimeError:  # a user without an entry and without HOME
        return {}
    return {home: "~"} if len(home) > 2 else {}


@functools.cache
def _names_of_machine() -> tuple[tuple[str, str], ...]:
    given = {"<host>": {platform.node()}, "<user>": {_user()}}
    given["<user>"] |= {Path(home).name for home in _home()}
    for label, variables in NAME_VARIABLES.items():
        given[label] |= {os.environ.get(name, "") for name in variables}
    return tuple(
        (word, label)
        for label, names in given.items()
        for word in {part for name in names for part in (name, name.split(".")[0])}
        if len(word) >= 3 and word.lower() not in COMMON_NAMES
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no passwd entry, as in some containers
        return ""
