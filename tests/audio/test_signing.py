"""Signatures that C2PA's own reader accepts, and set-ups that are refused at the start with what to do.

And what an engine does with its sound: files that grow, whole files, signed files.
"""

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import c2pa
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from audio.encoding import CODECS, encoded
from audio.provenance import SOURCE_TYPE, Provenance
from audio.signing import CERTIFICATE, KEY, SIGNED, Signature, SigningError, configured
from contract.catalog import AudioFormat, Serving, SpeechModel
from contract.speech.engine import AudioBlock, SpeechJob
from contract.speech.request import MEDIA_TYPES
from models.speech.adapter import LENGTH_FIRST, SpeechAdapter, Spoken
from tests.audio.test_encoding import decoded, likeness, sound
from tests.provenance import read_provenance

NOW = datetime.now(UTC)
KEYS = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65_537, 2_048),
}


def name(of: str) -> x509.Name:
    parts = {NameOID.ORGANIZATION_NAME: "Test", NameOID.COMMON_NAME: of}
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()])


def certificate(
    of: str, public: Any, issuer: str, issuer_key: Any, *, is_ca: bool, days: int = 30, purpose: Any = None
) -> x509.Certificate:
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
         "decipher_only"), False
    )  # fmt: skip
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(of))
        .issuer_name(name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=60))
        .not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **usage), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if purpose:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


class Authority:
    """A root of trust and the files of a signer below it."""

    def __init__(self, folder: Path, kind: str = "P-256", **leaf: Any) -> None:
        root_key = ec.generate_private_key(ec.SECP256R1())
        self.root = certificate("root", root_key.public_key(), "root", root_key, is_ca=True).public_bytes(Encoding.PEM)
        key = KEYS[kind]()
        options = {"purpose": ExtendedKeyUsageOID.EMAIL_PROTECTION} | leaf
        signer = certificate("signer", key.public_key(), "root", root_key, is_ca=False, **options)
        self.certificate, self.key = folder / "chain.pem", folder / "key.pem"
        self.certificate.write_bytes(signer.public_bytes(Encoding.PEM))
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.private = key

    def read(self, data: bytes, format: AudioFormat) -> dict[str, Any]:
        trust = {"trust": {"trust_anchors": self.root.decode()}, "verify": {"verify_trust": True}}
        with c2pa.Context.from_dict(trust) as context:
            return json.loads(c2pa.Reader(MEDIA_TYPES[format], io.BytesIO(data), context=context).json())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def clip(format: AudioFormat) -> bytes:
    return encoded(sound(0.5, 24_000), format, 24_000, Provenance("engine", 0))


@pytest.mark.parametrize("format", [*sorted(SIGNED), "opus", "aac"])
def test_a_signed_file_says_that_a_machine_made_it_can_be_checked_and_shows_a_change(
    authority: Authority, format: AudioFormat
) -> None:
    plain = clip(format)
    signed = Signature(authority.certificate, authority.key).sign(plain, format)
    if format not in SIGNED:
        assert signed == plain, "it has no place for a signature"
        return
    report = authority.read(signed, format)
    assert report["validation_state"] == "Trusted"
    manifest = report["manifests"][report["active_manifest"]]
    (actions,) = (one["data"]["actions"] for one in manifest["assertions"] if one["label"].startswith("c2pa.actions"))
    assert [(action["action"], action["digitalSourceType"]) for action in actions] == [("c2pa.created", SOURCE_TYPE)]
    assert manifest["claim_generator_info"][0]["name"] == "Parlance"
    np.testing.assert_array_equal(decoded(signed, 24_000), decoded(plain, 24_000))
    assert read_provenance(signed) == read_provenance(plain)
    at = len(signed) - 200 if format != "wav" else signed.index(b"data") + 1_000
    changed = signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :]
    assert authority.read(changed, format)["validation_state"] == "Invalid"


@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_key_signs(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path, kind)
    signed = Signature(authority.certificate, authority.key).sign(clip("wav"), "wav")
    assert authority.read(signed, "wav")["validation_state"] == "Trusted"


def test_the_environment_decides(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CERTIFICATE, raising=False)
    monkeypatch.delenv(KEY, raising=False)
    assert configured() is None
    monkeypatch.setenv(CERTIFICATE, str(authority.certificate))
    with pytest.raises(SigningError, match="PARLANCE_C2PA_KEY is not set"):
        configured()
    monkeypatch.setenv(KEY, str(authority.key))
    assert isinstance(configured(), Signature)


def test_files_that_cannot_be_used_are_refused_with_what_to_do(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    text, locked = tmp_path / "text", tmp_path / "locked"
    text.write_text("not PEM")
    pkcs8 = PrivateFormat.PKCS8
    locked.write_bytes(authority.private.private_bytes(Encoding.PEM, pkcs8, BestAvailableEncryption(b"x")))
    for chain, key, sentence in (
        (tmp_path / "none", authority.key, "CERTIFICATE names .*none, which cannot be read .*correct the path"),
        (authority.certificate, tmp_path / "none", "KEY names .*none, which cannot be read .*correct the path"),
        (text, authority.key, "a file without certificates: it must be a PEM chain"),
        (authority.certificate, text, "a file without a private key: it must be PEM"),
        (authority.certificate, locked, "not encrypted"),
        (authority.certificate, other.key, "does not belong to the first certificate"),
    ):
        with pytest.raises(SigningError, match=sentence):
            Signature(chain, key)


@pytest.mark.parametrize(
    "leaf", [{"days": -1}, {"purpose": None}, {"purpose": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}], ids=str
)
def test_certificates_that_may_not_sign_are_refused_at_the_start(leaf: dict[str, Any], tmp_path: Path) -> None:
    authority = Authority(tmp_path, **leaf)
    with pytest.raises(SigningError, match="cannot sign content"):
        Signature(authority.certificate, authority.key)


# In engines


FORMATS: list[AudioFormat] = ["wav", *CODECS]
TEXT = "three parts"
MODEL = SpeechModel(
    id="hummer",
    owned_by="test",
    provider="hum",
    languages=("en",),
    max_input_chars=100,
    serving=Serving(adapter="tests.audio.test_signing:Hummer", runtime="hum-1"),
)
SOUND = sound(3, MODEL.sample_rate)


class Hummer(SpeechAdapter):
    """Three parts of a second."""

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        for part, characters in zip(np.split(SOUND, 3), (4, 8, len(TEXT)), strict=True):
            yield Spoken(part, characters)


async def blocks_of(format: AudioFormat) -> list[AudioBlock]:
    engine = Hummer(MODEL, None)
    try:
        return [block async for block in engine.speak(SpeechJob(TEXT, "en", format=format))]
    finally:
        engine.close()


@pytest.fixture
def _signing(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CERTIFICATE, str(authority.certificate))
    monkeypatch.setenv(KEY, str(authority.key))


@pytest.mark.parametrize("format", FORMATS)
async def test_a_file_comes_as_it_is_made(format: AudioFormat) -> None:
    blocks = await blocks_of(format)
    assert sorted({block.characters for block in blocks}) == [4, 8, len(TEXT)], "so far it is billed"
    if format in LENGTH_FIRST:
        assert {block.characters for block in blocks if block.data} == {len(TEXT)}
    assert blocks[-1].seconds == 3
    data = b"".join(block.data for block in blocks)
    assert likeness(SOUND, decoded(data, MODEL.sample_rate)) > 0.99
    assert read_provenance(data)["engine"] == "hum-1"


async def test_a_whole_file_says_how_long_it_is() -> None:
    engine = Hummer(MODEL, None)
    whole = {format: await engine.speak_whole(SpeechJob(TEXT, "en", format=format)) for format in FORMATS}
    engine.close()
    for format, block in whole.items():
        assert (block.characters, block.seconds) == (len(TEXT), 3)
        assert likeness(SOUND, decoded(block.data, MODEL.sample_rate)) > 0.99, format
    data = whole["wav"].data
    assert struct.unpack_from("<I", data, 4) == (len(data) - 8,)
    assert struct.unpack_from("<I", data, data.index(b"data") + 4) == (len(SOUND) * 2,)


@pytest.mark.usefixtures("_signing")
@pytest.mark.parametrize("format", FORMATS)
async def test_formats_that_can_are_signed_and_come_at_the_end(format: AudioFormat) -> None:
    blocks = await blocks_of(format)
    data = b"".join(block.data for block in blocks)
    assert likeness(SOUND, decoded(data, MODEL.sample_rate)) > 0.99
    assert {block.characters for block in blocks} == {4, 8, len(TEXT)}, "so far it is billed"
    if format in SIGNED:
        assert {block.characters for block in blocks if block.data} == {len(TEXT)}
        reader = c2pa.Reader({"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac"}[format], io.BytesIO(data))
        assert reader.get_validation_state() == "Valid"


@pytest.mark.usefixtures("_signing")
async def test_an_engine_that_cannot_sign_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CERTIFICATE, str(tmp_path / "lost.pem"))
    with pytest.raises(SigningError, match=r"lost\.pem, which cannot be read"):
        Hummer(MODEL, None)
