"""Text as Java reads it: replacement of malformed UTF-8, ``hashCode``, ``parseInt``, in Python and compiled."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.proof_counts import Proof

from reput.source.kernels.property_kernels import java_hash
from reput.source.record.message_properties import decode_utf8, hash_code, parse_int

BAD = "\ufffd"

#: Units that are whole, cut short, overlong, out of range or surrogates, and the ASCII that may be between them.
FRAGMENTS = [b"a", b"7", b"+", b"-", b"\x00", b"\x7f", b"\x80", b"\xbf", b"\xc0", b"\xc1\xbf", b"\xc2", b"\xc3\xa4"]
FRAGMENTS += [
    b"\xdf",
    b"\xe0",
    b"\xe0\x80\x80",
    b"\xe0\x9f\xbf",
    b"\xe0\xa0\x80",
    b"\xe4\xb8",
    b"\xe4\xb8\xad",
    b"\xe4",
]
FRAGMENTS += [b"\xed", b"\xed\x9f\xbf", b"\xed\xa0", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xc0", b"\xef\xbf\xbd"]
FRAGMENTS += [b"\xf0", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x90", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80"]
FRAGMENTS += [b"\xf4", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf4\x90", b"\xf5", b"\xf8\x88\x80\x80\x80", b"\xff"]
FRAGMENTS += ["\uff13".encode(), "\u0663".encode(), b"2147483648", b"0"]
NASTY = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join)


def compiled_hash(data: bytes, seed: int = 0) -> int:
    """The kernel's hash, of bytes in the middle of others that would continue a sequence."""
    padded = np.frombuffer(b"\xf0\x9f" + data + b"\x98\x80", np.uint8)
    return int(java_hash(padded, 2, len(data), seed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA||TagB", 1_789_476_431),
        ("TAG1", 2_567_159),
        ("abc", 96_354),
        ("中文", 646_394),
        ("😀", 1_772_899),
        ("polygenelubricants", -(2**31)),
        ("\x00", 0),
        ("\uffff", 65_535),
    ],
)
def test_hash_code(text: str, expected: int) -> None:
    """The values that ``String#hashCode`` gives, from either implementation."""
    assert (expected, expected) == (hash_code(text), compiled_hash(text.encode()))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"ab\xc3\xa4", "abä"),
        (b"\xed\xa0\x80", BAD),
        (b"\xed\xa0\x80a", BAD + "a"),
        (b"\xed\xa0", BAD),
        (b"\xed\xa0a", BAD + "a"),
        (b"\xed\xbf\xbf\xed\xa0", BAD * 2),
        (b"\xed\xa0\xed\xa0\x80", BAD * 2),
        (b"\xed", BAD),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xf0\x80\x80\x80", BAD * 4),
        (b"\xf0\x8f\xbf\xbf", BAD * 4),
        (b"\xf0\x90\x80", BAD),
        (b"\xf0\x90", BAD),
        (b"\xf0\x90a", BAD + "a"),
        (b"\xf0\x9f\x98\x80", "😀"),
        (b"\xf4\x8f\xbf\xbf", "\U0010ffff"),
        (b"\xf4\x90\x80\x80", BAD * 4),
        (b"\xf5\x80\x80\x80", BAD * 4),
        (b"\xc0\xaf", BAD * 2),
        (b"\xc1\xbf", BAD * 2),
        (b"\xc2", BAD),
        (b"\xc2a", BAD + "a"),
        (b"\xe0\x80\xaf", BAD * 3),
        (b"\xe4\xb8", BAD),
        (b"\xe4\xb8a", BAD + "a"),
        (b"\xe4a", BAD + "a"),
        (b"\x80\xbf", BAD * 2),
        (b"\xff\xfe", BAD * 2),
        (b"\xef\xbf\xbd", BAD),
        (b"\xef\xbb\xbfa", "\ufeffa"),
    ],
)
def test_malformed_utf_8(data: bytes, expected: str) -> None:
    """Each malformed unit becomes one U+FFFD, as long as Java takes the unit to be."""
    assert expected == decode_utf8(data)
    assert hash_code(expected) == compiled_hash(data)


def test_other_codecs_keep_their_errors() -> None:
    """The error handler is for decoding alone."""
    with pytest.raises(UnicodeEncodeError):
        "\ud800".encode("utf-8", "reput_java")


@given(st.binary(max_size=24) | NASTY | st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_compiled_hash_is_that_of_the_decoded_text(data: bytes) -> None:
    """Bytes are hashed without being decoded, to the same number."""
    assert hash_code(decode_utf8(data)) == compiled_hash(data)


@given(NASTY, NASTY)
def test_hash_continues_from_a_seed(first: bytes, second: bytes) -> None:
    """The hash of two texts is that of the second one continued from that of the first."""
    both = decode_utf8(first) + decode_utf8(second)
    assert hash_code(both) == compiled_hash(second, compiled_hash(first))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("2147483648", None),
        ("-2147483649", None),
        ("00000000002147483647", 2**31 - 1),
        ("99999999999999999999", None),
        ("9" * 5000, None),
        ("", None),
        ("+", None),
        ("-", None),
        ("+-7", None),
        ("--7", None),
        ("7-", None),
        (" 7", None),
        ("7 ", None),
        ("7\n", None),
        ("1_0", None),
        ("0x7", None),
        ("7.0", None),
        ("1e3", None),
        ("a", None),
        ("\uff17", 7),
        ("-\uff17", -7),
        ("1\u0667", 17),
        ("\u00b2", None),
        ("\u2167", None),
        ("\U0001d7df", None),
        ("\uff0d7", None),
        ("\u22127", None),
        ("\x007", None),
        (BAD, None),
    ],
)
def test_parse_int(text: str, expected: int | None) -> None:
    """``Integer.parseInt`` takes one sign and decimal digits of the first plane, and nothing else."""
    assert expected == parse_int(text)


JAVA = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.HexFormat;

public class Strings {
    public static void main(String[] args) throws IOException {
        try (BufferedReader lines = Files.newBufferedReader(Path.of(args[0]));
             BufferedWriter out = Files.newBufferedWriter(Path.of(args[1]))) {
            for (String line; (line = lines.readLine()) != null;) {
                String text = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8);
                String number;
                try {
                    number = String.valueOf(Integer.parseInt(text));
                } catch (NumberFormatException e) {
                    number = "None";
                }
                String units = HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE));
                out.write(units + " " + text.hashCode() + " " + number + "\\n");
            }
        }
    }
}
"""


@pytest.mark.broker
@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK on PATH")
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_java_agrees(count: int, tmp_path: Path, proof: Proof) -> None:
    """A real Java decodes, hashes and parses many malformed texts and every character of the first plane alike."""
    rng = random.Random(20_000)
    cases = [b"".join(rng.choices(FRAGMENTS, k=rng.randint(1, 6))) for _ in range(count * 8 // 10)]
    cases += [rng.randbytes(rng.randint(1, 8)) for _ in range(count // 10)]
    cases += [bytes(rng.choices(b"\x7f\x80\xbf\xc2\xe0\xed\xef\xf0\xf4\x90\xa0", k=6)) for _ in range(count // 10)]
    cases += [chr(point).encode() for point in range(0x10000) if not 0xD800 <= point <= 0xDFFF]
    source, given_, found = tmp_path / "Strings.java", tmp_path / "in", tmp_path / "out"
    source.write_text(JAVA, encoding="utf-8")
    given_.write_text("".join(f"{case.hex()}\n" for case in cases), encoding="utf-8")
    subprocess.run(["java", str(source), str(given_), str(found)], check=True, timeout=120)
    lines = found.read_text(encoding="utf-8").splitlines()
    differences = []
    for case, line in zip(cases, lines, strict=True):
        text = decode_utf8(case)
        if f"{text.encode('utf-16-be').hex()} {compiled_hash(case)} {parse_int(text)}" != line:
            differences.append((case.hex(), line))
    assert not differences
    proof("G10 hash codes and numbers as Java's", len(cases))
