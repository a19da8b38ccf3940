"""Caches on disk: whole files or none, in a folder that nobody else can write."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from platformdirs import user_cache_path

from populus.dialects.support import disk_cache
from populus.dialects.support.diagnostics import PopulusWarning
from populus.dialects.support.digest import SMALL, sha256
from populus.dialects.support.disk_cache import DiskCache, default_folder, hash_of
from populus.dialects.table import context
from populus.lowering.driver.program_cache import MAGIC, ProgramCache
from populus.runtime.engine.native.codegen.cpu import Machine

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has other rights, which are not checked")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    disk_cache._WARNED.clear()
    return DiskCache(tmp_path / "cache", b"test 1\n", 1 << 20)


def test_a_new_folder_is_the_users_alone(cache: DiskCache):
    assert cache.read("a") is None
    cache.write("a", b"content")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert cache.read("a") == b"content"
    assert not [p for p in cache.folder.iterdir() if p.name != "a"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda folder: folder.chmod(0o777), r"may be written by others \(mode 777\)"),
        (lambda folder: folder.chmod(0o770), r"may be written by others \(mode 770\)"),
        (lambda folder: folder.parent.chmod(0o777), r"lies in a folder that anybody may write \(mode 777\)"),
    ],
)
def test_a_planted_file_is_not_read_and_nothing_is_written(cache: DiskCache, change, line):
    cache.write("a", b"planted")
    change(cache.folder)
    with pytest.warns(PopulusWarning, match=rf"cache folder \S+ {line}; it is not used: remove it, as others may have put files there"):
        assert cache.read("a") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning for a folder
        cache.write("b", b"new")
        assert cache.read("a") is None
    assert [p.name for p in cache.folder.iterdir()] == ["a"]


def test_a_folder_of_another_user_is_not_used(cache: DiskCache, monkeypatch: pytest.MonkeyPatch):
    cache.write("a", b"theirs")
    monkeypatch.setattr(os, "geteuid", lambda: cache.folder.stat().st_uid + 1)
    with pytest.warns(PopulusWarning, match="belongs to user"):
        assert cache.read("a") is None


def test_links_are_not_followed(cache: DiskCache, tmp_path: Path):
    cache.write("a", b"content")
    (tmp_path / "elsewhere").write_bytes((cache.folder / "a").read_bytes())
    (cache.folder / "b").symlink_to(tmp_path / "elsewhere")
    assert cache.read("b") is None
    other = DiskCache(tmp_path / "link", cache.magic, cache.limit)
    other.folder.symlink_to(cache.folder)
    with pytest.warns(PopulusWarning, match="is a link"):
        assert other.read("a") is None


def given(path: Path):
    """Gives a file to another user."""
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    os.chown(path, 65534, 65534)


def moved(path: Path, instead, before=lambda path: None):
    """Moves a file to another folder, and puts something in its place."""
    (far := path.parent.parent / "far").mkdir(exist_ok=True)
    before(path)
    os.rename(path, far / path.name)
    instead(far / path.name, path)


PLANTED = {
    "another user's file": given,
    "a file that the group may write": lambda path: path.chmod(0o660),
    "a file that anybody may write": lambda path: path.chmod(0o606),
    "a link to a file": lambda path: moved(path, os.symlink),
    "another name of another user's file": lambda path: moved(path, os.link, given),
    "a pipe": lambda path: moved(path, lambda far, path: os.mkfifo(path)),
    "a folder": lambda path: moved(path, lambda far, path: path.mkdir()),
}


@pytest.mark.filterwarnings("ignore:cache folder")
@pytest.mark.parametrize("how", PLANTED)
def test_a_file_that_others_put_into_the_folder_is_not_read_and_is_replaced(cache: DiskCache, how: str):
    """While the folder was open, before it became the user's alone."""
    cache.write("a", b"planted")
    PLANTED[how](cache.folder / "a")
    assert cache.read("a") is None
    assert not cache.owned("a")
    if how == "a folder":
        return
    cache.write("a", b"new")
    assert cache.owned("a")
    assert cache.read("a") == b"new"


def test_a_file_of_another_user_is_named_once_with_the_advice_to_remove_the_folder(cache: DiskCache):
    cache.write("a", b"planted")
    (cache.folder / "a").chmod(0o666)
    said = r"has the file a, which may be written by others \(mode 666\): remove the folder or name another in POPULUS_CACHE"
    with pytest.warns(PopulusWarning, match=rf"cache folder \S+ {said}"):
        assert cache.read("a") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read("a") is None


def test_an_empty_name_means_no_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("POPULUS_CACHE", "")
    assert default_folder("x") is None
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    assert default_folder("x") == tmp_path / "x"
    monkeypatch.delenv("POPULUS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert default_folder("x") == tmp_path / "home" / "x"


@pytest.mark.parametrize("cache", [None, "", " ", "/c", "c", "~/c"])
@pytest.mark.parametrize("home", [None, "", "/h", "h"])
def test_the_default_folder_is_where_platformdirs_says(monkeypatch: pytest.MonkeyPatch, cache: str | None, home: str | None):
    for name, value in (("POPULUS_CACHE", None), ("XDG_CACHE_HOME", cache), ("HOME", home)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert default_folder("x") == user_cache_path() / "x"


def test_a_file_under_another_name_is_not_read(cache: DiskCache):
    cache.write("a", b"content")
    (cache.folder / "b").write_bytes((cache.folder / "a").read_bytes())
    assert (cache.read("a"), cache.read("b")) == (b"content", None)


def test_files_with_one_stem_go_together(cache: DiskCache):
    for i, name in enumerate(("a.program", "a.weights", "b.program", "b.weights")):
        cache.write(name, bytes(1000))
        os.utime(cache.folder / name, (i, i))
    cache.trim(2500)
    assert sorted(p.name for p in cache.folder.iterdir()) == ["b.program", "b.weights"]


def largest(folder: Path, known: Sequence[Path] = ()) -> Path:
    """The object among the files of a cache: others have names of objects."""
    return max((p for p in folder.iterdir() if p not in known), key=lambda p: p.stat().st_size)


def test_machine_code_from_a_shared_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from populus.runtime.engine.native.codegen.cpu import machine
    from populus.runtime.engine.native.codegen.jit import Library
    from populus.runtime.engine.native.run.step_loop import WORKER

    disk_cache._WARNED.clear()
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    library = Library(machine())
    library.load([WORKER])
    assert library.compiled == 1
    folder = tmp_path / "populus-native"
    file = largest(folder)  # the other has its name
    folder.chmod(0o777)
    head, planted = b"populus object 1\n", b"not an object"
    file.write_bytes(head + hash_of(file.name, planted) + planted)  # whole by its own hash: LLVM would abort the process on it
    again = Library(machine())
    with pytest.warns(PopulusWarning, match="mode 777"):
        again.load([WORKER])
    assert again.compiled == 1


@pytest.mark.parametrize("whose", ["another kernel's", "no object"])
def test_a_wrong_object_of_the_same_user_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str):
    from populus.runtime.engine.native.codegen.cpu import machine
    from populus.runtime.engine.native.codegen.jit import Kernel, Library
    from populus.runtime.engine.native.kernels.launch import Launch

    def answer(number: int, library: Library) -> Launch:
        text = "define i64 @{}(ptr %args, i64 %first, i64 %end) {{\n  store i64 {}, ptr %args\n  ret i64 0\n}}\n"
        kernel = Kernel(f"the answer {number}", lambda name, machine: text.format(name, number))
        return Launch(library, kernel, [0], 1)

    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    files: list[Path] = []
    for number in (1, 2):
        answer(number, Library(machine()))()
        files.append(largest(tmp_path / "populus-native", files))
    magic = b"populus object 1\n"
    content = files[1].read_bytes()[len(magic) + 32 :] if whose == "another kernel's" else b"nothing that LLVM knows"
    files[0].write_bytes(magic + hash_of(files[0].name, content) + content)
    library = Library(machine())
    launch = answer(1, library)
    launch()
    assert (launch.words[0], library.compiled) == (1, 1)


@pytest.mark.filterwarnings("ignore:cache folder")
@pytest.mark.parametrize("kind", ["program", "safetensors"])
@pytest.mark.parametrize("how", PLANTED)
def test_a_program_of_which_others_put_a_part_there_is_not_read(tmp_path: Path, kind: str, how: str):
    import populus

    cache = ProgramCache(tmp_path / "cache")
    with populus.Builder() as b:
        b.output("y", b.op("matmul", b.input("x", (1, 64)), b.constant(np.arange(4096, dtype=np.float32).reshape(64, 64)))[0])
    populus.compile(b.module(), tiles=1, cache=cache.folder)
    (program,) = cache.folder.glob("*.program")
    assert cache.get(context(), program.stem) is not None
    PLANTED[how](program.with_suffix(f".{kind}"))
    assert cache.get(context(), program.stem) is None


@pytest.mark.parametrize("kind", ["program", "safetensors"])
def test_a_program_with_any_byte_changed_is_not_read(tmp_path: Path, kind: str):
    import populus

    rng, cache = np.random.default_rng(len(kind)), ProgramCache(tmp_path)
    with populus.Builder() as b:
        b.output("y", b.op("matmul", b.input("x", (1, 64)), b.constant(rng.standard_normal((64, 64)).astype(np.float32)))[0])
    populus.compile(b.module(), tiles=1, cache=tmp_path)
    (program,) = tmp_path.glob("*.program")
    (file,) = tmp_path.glob(f"*.{kind}")
    assert cache.get(context(), program.stem) is not None
    content = file.read_bytes()
    for at in (*range(300), *rng.integers(0, len(content), 100).tolist(), len(content) - 1):
        changes = {content[at] ^ int(rng.integers(1, 256)), *({9, 10} if content[at] == 32 else ())}  # another space of JSON too
        for change in changes:
            file.write_bytes(content[:at] + bytes([change]) + content[at + 1 :])
            assert cache.get(context(), program.stem) is None, (at, change)
    file.write_bytes(content)
    assert cache.get(context(), program.stem) is not None


def test_a_program_from_a_shared_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from onnx import TensorProto, helper

    import populus

    def program(op: str) -> populus.Program:
        info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
        graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", info[:1], info[1:])
        return populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tiles=1, cache=tmp_path / "c")

    disk_cache._WARNED.clear()
    program("Neg")
    program("Abs")
    folder = tmp_path / "c"
    neg, other = sorted(p for p in folder.iterdir() if p.suffix == ".program")
    neg.write_bytes(other.read_bytes())  # the other program under its name, by the same user
    x = np.array([-1, 2, -3, 4], np.float32)
    assert np.array_equal(program("Neg").run({"x": x})["y"], -x)
    assert np.array_equal(program("Abs").run({"x": x})["y"], abs(x))
    for file in (neg, other):
        text = file.read_bytes()[len(MAGIC) + 32 :].replace(b"neg(_1)", b"abs(_1)")
        file.write_bytes(MAGIC + hash_of(file.name, text) + text)
    folder.chmod(0o777)
    with pytest.warns(PopulusWarning, match="mode 777"):
        assert np.array_equal(program("Neg").run({"x": x})["y"], -x)


def test_a_kernel_of_a_store_is_not_compiled_nor_its_text_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from populus.runtime.engine.native.codegen import jit, store
    from populus.runtime.engine.native.codegen.cpu import described, machine
    from populus.runtime.engine.native.run.step_loop import WORKER

    level = "aarch64" if machine().architecture == "aarch64" else "x86-64"
    monkeypatch.setattr(store, "LEVELS", (level,))
    monkeypatch.setattr(store, "FOLDER", str(tmp_path))
    monkeypatch.setenv("POPULUS_CACHE", "")
    texts: list[str] = []

    def build(name: str, plan: Machine) -> str:
        texts.append(name)
        return WORKER.build(name, plan)

    kernel, host = replace(WORKER, build=build), described(level)
    asked = store.Asked.like(host)
    content = jit.object_code(kernel.build(kernel.name, asked), host, kernel.vectors)
    store.write({jit.store_name(kernel, host): store.Stored(frozenset(asked.features_asked), content)}, str(tmp_path), level)
    library = jit.Library(machine())
    library.load([kernel])
    ours = "linux" in machine().triple
    assert (library.compiled, len(texts)) == ((0, 1) if ours else (1, 2))
    made: list[bool] = []
    of_store = jit.kept_object(kernel, host, lambda: made.append(True))
    assert of_store == content
    file = Path(store.path(str(tmp_path), level))
    file.write_bytes(file.read_bytes()[:-1])  # damaged: as if there were none
    store.objects.cache_clear()
    assert jit.kept_object(kernel, host, lambda: made.append(True)) == of_store
    assert made == [True]


def test_a_store_of_another_level_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from populus.runtime.engine.native.codegen import store
    from populus.runtime.engine.native.codegen.cpu import described

    monkeypatch.setattr(store, "FOLDER", str(tmp_path))
    for level in store.LEVELS:
        store.write({"a": store.Stored(frozenset(), level.encode())}, str(tmp_path), level)
    asked = {
        cpu: store.stored("a", described(cpu), described(cpu)) for cpu in ("x86-64-v2", "haswell", "cascadelake", "aarch64", "riscv64")
    }
    assert asked == {"x86-64-v2": None, "haswell": b"x86-64-v3", "cascadelake": b"x86-64-v4", "aarch64": b"aarch64", "riscv64": None}
    assert store.stored("b", described("haswell"), described("haswell")) is None


def test_a_store_is_not_asked_for_a_text_that_another_feature_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from populus.runtime.engine.native.codegen import store
    from populus.runtime.engine.native.codegen.byte_dots import form_of
    from populus.runtime.engine.native.codegen.cpu import described

    monkeypatch.setattr(store, "FOLDER", str(tmp_path))
    asked = store.Asked.like(described("x86-64-v4"))
    assert (form_of(asked), form_of(described("cascadelake"))) == ("wide", "vnni")
    assert asked.features_asked == {"avx512f", "avx512vnni", "avx512bw"}
    store.write(
        {"dots": store.Stored(frozenset(asked.features_asked), b"wide"), "sums": store.Stored(frozenset({"fma"}), b"sums")},
        str(tmp_path),
        "x86-64-v4",
    )
    found = {cpu: [store.stored(name, described(cpu), described(cpu)) for name in ("dots", "sums")] for cpu in ("x86-64-v4", "cascadelake")}
    assert found == {"x86-64-v4": [b"wide", b"sums"], "cascadelake": [None, b"sums"]}
    with pytest.raises(AssertionError, match="asks for a feature by `has`"):
        _ = asked.enabled


@pytest.mark.parametrize("size", [0, 55, 64, SMALL - 1, SMALL, SMALL + 1])
def test_small_and_large_contents_have_the_hash_of_hashlib(size: int):
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert len(content) == size and sha256(content) == hashlib.sha256(content).digest()
