"""A sigstore in one file: a certificate authority, a certificate log and a signature log, all of them made up.

In: a payload that a key has signed already. Out: the same payload signed by a short-lived certificate for an identity,
entered in both logs, as sigstore's bundle has it; and the roots of trust that make it believable.
"""

import base64
import datetime
import hashlib
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["TinySigstore"]

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LEAF_LIFE = datetime.timedelta(minutes=10)
SIGNED_AT = int((BEGIN + LEAF_LIFE / 2).timestamp())
CENTURY = datetime.timedelta(days=36500)
SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
OIDC_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
IN_TOTO = "application/vnd.in-toto+json"
MEDIA = "application/vnd.dev.sigstore"
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tiny sigstore")])
ECDSA = ec.ECDSA(hashes.SHA256())


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(public_bytes(key)).digest()


@dataclass(frozen=True)
class TinySigstore:
    """The three keys on which everything rests."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificate_log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    signature_log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    def write_trust(self, path: Path) -> Path:
        """The roots of trust, as `--trust-config` takes them."""
        logs = {"tlogs": self.signature_log, "ctlogs": self.certificate_log}
        chain = {"certificates": [{"rawBytes": text(self._root().public_bytes(serialization.Encoding.DER))}]}
        trusted_root: dict[str, Any] = {name: [_log_entry(key)] for name, key in logs.items()}
        trusted_root |= {
            "mediaType": f"{MEDIA}.trustedroot+json;version=0.1",
            "certificateAuthorities": [
                {
                    "subject": {"organization": "tiny", "commonName": "tiny"},
                    "uri": "https://ca.invalid",
                    "certChain": chain,
                    "validFor": _always(),
                }
            ],
            "timestampAuthorities": [],
        }
        signing = {
            "mediaType": f"{MEDIA}.signingconfig.v0.2+json",
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaConfig": {"selector": "ANY"},
        }
        config = {
            "mediaType": f"{MEDIA}.clienttrustconfig.v0.1+json",
            "trustedRoot": trusted_root,
            "signingConfig": signing,
        }
        path.write_text(json.dumps(config))
        return path

    def sign_again(self, signature: Path, identity: str, provider: str) -> None:
        """Put the signature of `identity` in the place of a key's in the file `signature`."""
        payload = base64.b64decode(json.loads(signature.read_text())["dsseEnvelope"]["payload"])
        key = new_key()
        certificate = self._leaf(key, identity, provider)
        signed = key.sign(f"DSSEv1 {len(IN_TOTO)} {IN_TOTO} {len(payload)} ".encode() + payload, ECDSA)
        envelope = {
            "payload": text(payload),
            "payloadType": IN_TOTO,
            "signatures": [{"sig": text(signed), "keyid": ""}],
        }
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        body = _body(envelope, payload, signed, pem)
        raw = certificate.public_bytes(serialization.Encoding.DER)
        material = {"certificate": {"rawBytes": text(raw)}, "tlogEntries": [self._logged(body)]}
        bundle = {"mediaType": f"{MEDIA}.bundle.v0.3+json", "verificationMaterial": material, "dsseEnvelope": envelope}
        signature.write_text(json.dumps(bundle))

    def _root(self) -> x509.Certificate:
        builder = _builder(NAME, NAME, self.authority, CENTURY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(key_cert_sign=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key())
        return builder.add_extension(identifier, critical=False).sign(self.authority, hashes.SHA256())

    def _leaf(self, key: ec.EllipticCurvePrivateKey, identity: str, provider: str) -> x509.Certificate:
        """A certificate that carries the promise of the certificate log over itself without that promise."""
        builder = _builder(x509.Name([]), NAME, key, LEAF_LIFE)
        builder = builder.add_extension(_usage(digital_signature=True), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.RFC822Name(identity)]), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key())
        builder = builder.add_extension(issuer, critical=False)
        builder = builder.add_extension(x509.UnrecognizedExtension(OIDC_ISSUER, provider.encode()), critical=False)
        bare = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        promise = x509.UnrecognizedExtension(SCT_LIST, self._promise(bare))
        return builder.add_extension(promise, critical=False).sign(self.authority, hashes.SHA256())

    def _promise(self, certificate: bytes) -> bytes:
        """RFC 6962, section 3.2: a list of one signed timestamp, in DER."""
        moment = SIGNED_AT * 1000
        entry = key_id(self.authority) + len(certificate).to_bytes(3, "big") + certificate
        signed = struct.pack("!BBQH", 0, 0, moment, 1) + entry + struct.pack("!H", 0)
        signature = self.certificate_log.sign(signed, ECDSA)
        head = struct.pack("!B32sQH", 0, key_id(self.certificate_log), moment, 0)
        timestamp = head + struct.pack("!BBH", 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(timestamp) + 2, len(timestamp)) + timestamp
        return b"\x04" + _der_length(len(listed)) + listed

    def _logged(self, body: bytes) -> dict[str, Any]:
        """An entry of a log that holds nothing else: its leaf is its root."""
        log_id, root = key_id(self.signature_log), hashlib.sha256(b"\0" + body).digest()
        note = f"tiny.invalid\n1\n{text(root)}\n"
        mark = text(log_id[:4] + self.signature_log.sign(note.encode(), ECDSA))
        promised = {"body": text(body), "integratedTime": SIGNED_AT, "logID": log_id.hex(), "logIndex": 0}
        promise = self.signature_log.sign(json.dumps(promised, separators=(",", ":"), sort_keys=True).encode(), ECDSA)
        return {
            "logIndex": "0",
            "logId": {"keyId": text(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(SIGNED_AT),
            "inclusionPromise": {"signedEntryTimestamp": text(promise)},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": text(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 tiny.invalid {mark}\n"},
            },
            "canonicalizedBody": text(body),
        }


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: datetime.timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(7).not_valid_before(BEGIN).not_valid_after(BEGIN + life)


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature, False, False, False, False, key_cert_sign, False, False, False)


def _der_length(length: int) -> bytes:
    return (
        bytes([length])
        if length < 128
        else b"\x81" + bytes([length])
        if length < 256
        else b"\x82" + length.to_bytes(2, "big")
    )


def _always() -> dict[str, str]:
    return {"start": "2020-01-01T00:00:00Z", "end": "2120-01-01T00:00:00Z"}


def _log_entry(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    public = {"rawBytes": text(public_bytes(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": _always()}
    return {
        "baseUrl": "https://log.invalid",
        "hashAlgorithm": "SHA2_256",
        "publicKey": public,
        "logId": {"keyId": text(key_id(key))},
    }


def _body(envelope: dict[str, Any], payload: bytes, signature: bytes, certificate: bytes) -> bytes:
    """What the signature log keeps."""
    spec = {
        "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(json.dumps(envelope).encode()).hexdigest()},
        "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
        "signatures": [{"signature": text(signature), "verifier": text(certificate)}],
    }
    entry = {"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}
    return json.dumps(entry, separators=(",", ":"), sort_keys=True).encode()
