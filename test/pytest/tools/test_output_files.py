"""Where the output of a command goes: to what its path leads to, with the mode and the owner of what was there."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import Place, check_places, replacing, replacing_all

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has other rights and no pipes with names")
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534


def write(path, text="new"):
    with replacing(path) as partial:
        partial.write_text(text)


def write_all(paths):
    with replacing_all(paths) as partials:
        for partial in partials:
            partial.write_text("new")


def read_from(pipe: Path) -> tuple[threading.Thread, list[str]]:
    """Reads a pipe in a thread."""
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes().decode("latin1")), daemon=True)
    reader.start()
    return reader, found


def test_a_new_file_has_the_usual_mode_and_nothing_else_is_left(tmp_path):
    write(tmp_path / "out.txt")
    (tmp_path / "other.txt").touch()
    assert (tmp_path / "out.txt").stat().st_mode == (tmp_path / "other.txt").stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.txt", "out.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_a_file_keeps_its_mode_and_is_a_new_file(tmp_path, mode):
    out = tmp_path / "out.txt"
    out.write_text("old")
    out.chmod(mode)
    before = out.stat()
    with replacing(out) as partial:
        assert stat.S_IMODE(partial.stat().st_mode) & ~mode == 0  # also while it is written
        partial.write_text("new")
        assert out.read_text() == "old"
    assert (out.read_text(), stat.S_IMODE(out.stat().st_mode)) == ("new", mode)
    assert out.stat().st_ino != before.st_ino


@pytest.mark.parametrize("there", [True, False], ids=["link", "dangling link"])
@pytest.mark.parametrize("relative", [True, False])
def test_a_link_stays_and_its_target_gets_the_content(tmp_path, there, relative):
    (tmp_path / "far").mkdir()
    target, link, second = tmp_path / "far" / "target.txt", tmp_path / "link.txt", tmp_path / "second.txt"
    if there:
        target.write_text("old")
        target.chmod(0o600)
    link.symlink_to("far/target.txt" if relative else target)
    second.symlink_to("link.txt")
    write(second)
    assert second.is_symlink() and link.is_symlink() and not target.is_symlink()
    assert target.read_text() == "new"
    assert not there or stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [p.name for p in (tmp_path / "far").iterdir()] == ["target.txt"]


def test_a_link_to_no_folder_to_itself_and_to_a_folder_and_a_name_that_ends_as_one_are_one_line(tmp_path):
    (tmp_path / "none").symlink_to("nowhere/file")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "folder").symlink_to(".")
    for name, said in (
        ("none", f"cannot be written: there is no folder {tmp_path}/nowhere"),
        ("self", "cannot be written: Too many levels of symbolic links"),
        ("folder", "cannot be written: Is a directory"),
        ("new/", "cannot be written: Is a directory"),
    ):
        for ask in (write, lambda path: check_places([path])):
            with pytest.raises(PopulusError, match=f"{tmp_path}/{name}: {said}"):
                ask(f"{tmp_path}/{name}")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_pipe_gets_the_content_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader, found = read_from(pipe)
    write(pipe, "x" * 100_000)
    reader.join(60)
    assert found == ["x" * 100_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_a_device_gets_the_content_and_stays(device):
    if not Path(device).is_char_device():
        pytest.skip("this machine has no such device")
    before = os.stat(device)
    if device == "/dev/null":
        write(device)
    else:
        with pytest.raises(PopulusError, match="/dev/full: cannot be written: No space left on device"):
            write(device)
    after = os.stat(device)
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)


def test_a_socket_is_one_line_and_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        with pytest.raises(PopulusError, match="socket: cannot be written: "):
            write("socket")
        assert stat.S_ISSOCK(os.stat("socket").st_mode)


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_standard_output_by_its_path_comes_after_what_was_printed(tmp_path, kind):
    code = (
        "from populus.dialects.support.output_files import replacing\nprint('first')\n"
        "with replacing('/dev/stdout') as p: p.write_text('second\\n')\nprint('third')"
    )
    run = [sys.executable, "-c", code]
    if kind == "pipe":
        said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    else:
        with (tmp_path / "out.txt").open("w") as file:
            subprocess.run(run, stdout=file, check=True)
        said = (tmp_path / "out.txt").read_text()
    assert said == "first\nsecond\nthird\n"


def test_a_long_name_is_written_and_one_that_is_too_long_is_one_line(tmp_path):
    longest = tmp_path / ("é" * 127 + "x")
    assert len(os.fsencode(longest.name)) == 255
    for _ in range(2):
        write(longest)
    write(tmp_path / "short")
    write_all([longest, tmp_path / "short"])
    assert longest.read_text() == (tmp_path / "short").read_text() == "new"
    for ask in (write, lambda path: check_places([path])):
        with pytest.raises(PopulusError, match="cannot be written: File name too long"):
            ask(tmp_path / ("x" * 256))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("path", ["-", "a\0b"])
def test_names_that_are_no_files_are_refused(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PopulusError, match="cannot be written: "):
        write(path)
    write("./-")
    assert [p.name for p in tmp_path.iterdir()] == ["-"]


def written_by_nobody(path: Path) -> str:
    """Writes a file as another user, in a child process. Returns what is said, or nothing."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            write(path)
        except BaseException as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def shared():
    """A folder that another user can reach."""
    if not ROOT:
        pytest.skip("only root has files of several users")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_roots_output_over_another_users_file_stays_that_users(tmp_path):
    if not ROOT:
        pytest.skip("only root may give files away")
    out = tmp_path / "out.txt"
    out.write_text("old")
    out.chmod(0o640)
    os.chown(out, NOBODY, NOBODY)
    write(out)
    found = out.stat()
    assert (out.read_text(), found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == ("new", NOBODY, NOBODY, 0o640)


@pytest.mark.parametrize(
    ("mode", "folder_mode", "owner", "said"),
    [
        (0o444, 0o777, NOBODY, "cannot be written: Permission denied"),  # read-only, though its folder would let it be replaced
        (0o600, 0o777, 0, "cannot be written: Permission denied"),
        (0o666, 0o777, 0, ""),  # of another user, who lets others write: it stays that user's
        (0o644, 0o555, NOBODY, ""),  # the folder is closed, the file is not
    ],
)
def test_rights_of_a_file_count_and_it_keeps_its_owner(shared, mode, folder_mode, owner, said):
    place = shared / "place"
    place.mkdir()
    out = place / "out.txt"
    out.write_text("the old content")
    out.chmod(mode)
    os.chown(out, owner, owner)
    place.chmod(folder_mode)
    assert written_by_nobody(out) == (f"{out}: {said}" if said else "")
    found = out.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (owner, mode)
    assert out.read_text() == ("the old content" if said else "new")
    assert [p.name for p in place.iterdir()] == ["out.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    out = tmp_path / "out.txt"
    out.write_text("old")
    monkeypatch.setattr(
        Path, "write_text", lambda path, text: (path.write_bytes(b"half"), os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
    )
    with pytest.raises(PopulusError, match="out.txt: cannot be written: No space left on device"):
        write(out)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out.txt", "old")]


def test_what_is_written_to_comes_before_what_is_renamed(tmp_path, monkeypatch):
    """A pipe without a reader fails while the files are the old ones."""
    for name in "ab":
        (tmp_path / name).write_text("old")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(Place, "fill", lambda *_: (_ for _ in ()).throw(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    with pytest.raises(PopulusError, match="cannot be written: Broken pipe"):
        write_all([tmp_path / name for name in ("a", "pipe", "b")])
    assert [(tmp_path / name).read_text() for name in "ab"] == ["old", "old"]
    assert len(list(tmp_path.iterdir())) == 3
