"""Elliptic curve keys for tests, as `openssl ecparam -genkey` and `openssl ec -pubout` would write them."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["write_key_pair"]


def write_key_pair(
    folder: Path, name: str, curve: ec.EllipticCurve | None = None, password: str | None = None
) -> tuple[Path, Path]:
    """NAME.pem and NAME.pub in `folder`; P-256 unless another curve is asked for."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    encryption = (
        serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password.encode())
    )
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public
