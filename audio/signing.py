"""Signs files with C2PA content credentials, which prove who published them and that a machine made them.

To sign, a deployment names a certificate chain and its key in PARLANCE_C2PA_CERTIFICATE and PARLANCE_C2PA_KEY. A
signature covers the whole file, so signed formats are not streamed. C2PA defines no place for one in Ogg or ADTS.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

from audio.provenance import SOURCE_TYPE, Provenance
from contract.catalog import AudioFormat
from contract.speech.request import MEDIA_TYPES

SIGNED: frozenset[AudioFormat] = frozenset({"wav", "mp3", "flac"})
"""Formats that can carry a signature."""

CERTIFICATE, KEY = "PARLANCE_C2PA_CERTIFICATE", "PARLANCE_C2PA_KEY"

_CURVES = {"secp256r1": "es256", "secp384r1": "es384", "secp521r1": "es512"}


class SigningError(RuntimeError):
    """Files cannot be signed as the deployment is set up. Its text says what to do."""


class Signature:
    """A certificate and its key, proven to work. Any number of threads may sign with it.

    Args:
        certificate: PEM file; the certificate that signs first, then those above it, up to but without the root.
        key: PEM file, not encrypted. P-256, P-384, P-521, Ed25519, or RSA (PS256).

    Raises:
        SigningError: they cannot be read, do not belong together, or are not allowed to sign content.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._chain = _read(certificate, CERTIFICATE)
        self._key = _read(key, KEY)
        self._algorithm = _algorithm(self._chain, self._key)
        self._try_out(certificate)

    def sign(self, data: bytes, format: AudioFormat) -> bytes:
        """The same sound with a signed manifest; formats that cannot carry one come back as they are."""
        import c2pa

        if format not in SIGNED:
            return data
        info = c2pa.C2paSignerInfo(self._algorithm, self._chain, self._key, None)
        signed = io.BytesIO()
        with c2pa.Signer.from_info(info) as signer, c2pa.Builder(_manifest()) as builder:
            builder.sign(signer, MEDIA_TYPES[format], io.BytesIO(data), signed)
        return signed.getvalue()

    def _try_out(self, certificate: Path) -> None:
        """Signs a moment of silence: C2PA looks at what a certificate allows only when it is used."""
        import c2pa
        import numpy as np

        from audio.encoding import encoded

        try:
            self.sign(encoded(np.zeros(800, np.float32), "wav", 8_000, Provenance("test", 0)), "wav")
        except c2pa.C2paError as error:
            raise SigningError(
                f"the certificate {certificate} of {CERTIFICATE} cannot sign content ({error}): it must be valid now,"
                " not be self-signed, allow digital signatures, and name a purpose that C2PA accepts, such as e-mail"
                " protection"
            ) from error


def configured() -> Signature | None:
    """The signature that the environment configures, None without one. Raises SigningError."""
    paths = {name: os.environ.get(name, "") for name in (CERTIFICATE, KEY)}
    if not any(paths.values()):
        return None
    for name, path in paths.items():
        if not path:
            raise SigningError(f"{name} is not set, but its counterpart is: set both to sign speech, or neither")
    return Signature(Path(paths[CERTIFICATE]), Path(paths[KEY]))


def _manifest() -> str:
    created = {"action": "c2pa.created", "digitalSourceType": SOURCE_TYPE}
    assertion = {"label": "c2pa.actions.v2", "data": {"actions": [created]}}
    return json.dumps({"claim_generator_info": [{"name": "Parlance"}], "assertions": [assertion]})


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SigningError(
            f"{name} names {path}, which cannot be read ({error.strerror}): correct the path, or let this user read "
            "the file"
        ) from error


def _algorithm(chain: bytes, key: bytes) -> str:
    """C2PA's name for what such a key signs with. Raises SigningError, also if the certificate is another key's."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        leaf = x509.load_pem_x509_certificates(chain)[0]
    except ValueError as error:
        raise SigningError(f"{CERTIFICATE} names a file without certificates: it must be a PEM chain") from error
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningError(f"{KEY} names a file without a private key: it must be PEM and not encrypted") from error
    if leaf.public_key() != private.public_key():
        raise SigningError(f"{KEY} does not belong to the first certificate in {CERTIFICATE}: name a matching pair")
    match private:
        case Ed25519PrivateKey():
            return "ed25519"
        case RSAPrivateKey():
            return "ps256"
        case EllipticCurvePrivateKey() if private.curve.name in _CURVES:
            return _CURVES[private.curve.name]
    raise SigningError(f"{KEY} has a type that C2PA does not accept: use P-256, P-384, P-521, Ed25519 or RSA")
