"""Finding the native library, and saying what is wrong where it is not or where onnxruntime is too old for it."""

import ctypes
from pathlib import Path

import pytest

from paceline.plugins.native import library


def test_the_library_is_there_and_names_its_instruction_set() -> None:
    assert library.library_path().is_file()
    assert library.isa_name() in ("portable", "avx2", "avx512", "amx")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with pytest.raises(library.NativeLibraryError, match="compiled kernels"):
        library.library_path()


def test_a_file_that_is_no_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / library.library_path().name
    broken.write_bytes(b"no library")
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with pytest.raises(library.NativeLibraryError, match="does not load"):
        library.open_library()


CreateStatus = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
GetApi = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
GetVersion = ctypes.CFUNCTYPE(ctypes.c_char_p)


class OldBase(ctypes.Structure):
    """OrtApiBase of an onnxruntime that knows API version 1 and no later one."""

    _fields_ = (("get_api", GetApi), ("get_version", GetVersion))


def test_an_onnxruntime_without_our_api_version_gets_a_status_in_words() -> None:
    messages: list[bytes] = []

    def create_status(_: int, message: bytes) -> int:
        messages.append(message)
        return 1

    table = (CreateStatus * 1)(CreateStatus(create_status))
    base = OldBase(GetApi(lambda version: ctypes.addressof(table) if version == 1 else 0), GetVersion(lambda: b"1.15"))
    register = library.open_library().RegisterCustomOps
    register.argtypes, register.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_void_p
    assert register(None, ctypes.addressof(base)) == 1
    assert [b"onnxruntime older than 1.16" in message and b"do: pip install" in message for message in messages] == [
        True
    ]
