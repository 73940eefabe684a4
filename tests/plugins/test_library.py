"""Finding the native library, and saying what is wrong where it is not."""

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
