"""The build cache: content decides, not time stamps; concurrent, killed and read-only builds."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from opforge.build.builder import build_library
from opforge.build.cache import cache_dir
from opforge.build.library import load_library
from opforge.build.plan import plan_library
from tests.unit.build.conftest import write_scale

pytestmark = pytest.mark.compiler

CHILD = """
import sys, opforge as of, numpy as np
from opforge.build import library_for
operator = of.load(sys.argv[1])[0]
library = library_for([operator])
print(library.path, operator(np.ones(3, np.float32)).tolist())
"""


def build(operator):
    return build_library(plan_library([operator]))


def run_child(folder, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def age(path):
    """Make a file look old: an edit within the compiler's run is not recorded."""
    os.utime(path, (1e9, 1e9))


def test_same_content_is_built_once(scale):
    operator = scale("Once")
    first = build(operator)
    stamp = first.stat().st_mtime_ns
    assert build(operator) == first
    assert first.stat().st_mtime_ns == stamp
    assert first.is_relative_to(cache_dir())


def test_edited_header_rebuilds_whatever_its_time_stamp(scale):
    operator = scale("Header")
    header = operator.sources[0].with_name("factor.h")
    age(header)
    first = build(operator)
    header.write_text("constexpr float kFactor = 3.0f;\n")
    age(header)
    second = build(operator)
    assert second != first
    assert load_library(second).content_hash != load_library(first).content_hash
    header.write_text("constexpr float kFactor = 1.0f;\n")
    age(header)
    assert build(operator) == first  # the old content is still there


def test_header_dated_in_the_future_is_recorded(scale):
    operator = scale("Future")
    os.utime(operator.sources[0].with_name("factor.h"), (4e9, 4e9))
    first = build(operator)
    assert first.with_suffix(".json").is_file()
    assert build(operator) == first


@pytest.mark.parametrize("content", ["[]", "{}", '{"files": 3}', "not json", '{"files": {"/no/such": null}}'])
def test_a_record_that_is_not_ours_rebuilds(scale, content):
    first = build(scale("Record"))
    first.with_suffix(".json").write_text(content)
    second = build(scale("Record"))
    assert second.is_file()
    assert second.with_suffix(".json").is_file()


def test_edit_is_seen_by_the_next_process(tmp_path):
    folder = write_scale(tmp_path / "package", "NextProcess")
    out, err = run_child(folder).communicate()
    assert out.split(maxsplit=1)[1].strip() == "[2.0, 2.0, 2.0]", err
    (folder / "factor.h").write_text("constexpr float kFactor = 5.0f;\n")
    out, err = run_child(folder).communicate()
    assert out.split(maxsplit=1)[1].strip() == "[10.0, 10.0, 10.0]", err


def test_profile_is_part_of_the_key(scale):
    plan = plan_library([scale("Flags")])
    fast, strict = build_library(plan, profile="fast"), build_library(plan, profile="strict")
    assert fast.parent != strict.parent
    assert "; strict; " in load_library(strict).build


def test_content_hash_does_not_depend_on_the_folder(tmp_path):
    texts = []
    for place in ("here", "there"):
        folder = write_scale(tmp_path / place / "package", "Moved")
        out, err = run_child(folder).communicate()
        assert out, err
        texts.append(load_library(out.split()[0]).content_hash)
    assert texts[0] == texts[1]


def test_eight_processes_make_one_result(tmp_path):
    folder = write_scale(tmp_path / "package", "Concurrent")
    children = [run_child(folder) for _ in range(8)]
    outputs = [child.communicate(timeout=600) for child in children]
    assert all(child.returncode == 0 for child in children), outputs
    assert len({out for out, _ in outputs}) == 1
    built = list(cache_dir().rglob("*.so"))
    assert len(built) == 1
    assert not list(cache_dir().rglob("tmp-*"))


def test_killed_build_leaves_no_lock(tmp_path):
    held, started = tmp_path / "held", tmp_path / "started"
    held.touch()
    slow = tmp_path / "slow"
    wait = f'touch "{started}"; while [ -e "{held}" ]; do sleep 0.05; done; exit 1'
    slow.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) {wait} ;; esac\nexec g++ "$@"\n')
    slow.chmod(0o755)
    folder = write_scale(tmp_path / "package", "Killed")
    child = run_child(folder, CXX=str(slow))
    until(lambda: started.exists() or child.poll() is not None)
    work = list(cache_dir().rglob("tmp-*"))
    assert work, f"the build did not start: {child.poll()}"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    # The same build (the same compiler, by its path), now fast, gets the lock while the compiler of the first lives.
    fast = tmp_path / "fast"
    fast.write_text('#!/bin/sh\nexec g++ "$@"\n')
    fast.chmod(0o755)
    fast.replace(slow)
    try:
        out, err = run_child(folder, CXX=str(slow)).communicate(timeout=600)
    finally:
        held.unlink()
    assert "[2.0, 2.0, 2.0]" in out, err
    assert "waiting for it" not in err
    assert not any(w.exists() for w in work)


def test_interrupted_build_takes_its_compilers_along(tmp_path):
    marker = f"opforge-test-{os.getpid()}"
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@" ;; esac\nsh -c "sleep 900; echo {marker}"\n')
    slow.chmod(0o755)
    folder = write_scale(tmp_path / "package", "Interrupted")
    child = run_child(folder, CXX=str(slow))
    until(lambda: running(marker) or child.poll() is not None)
    assert running(marker), "the compiler did not start"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=600)
    assert "KeyboardInterrupt" in err
    until(lambda: not running(marker), seconds=300)  # what a signal ends is gone a moment later
    assert not list(cache_dir().rglob("tmp-*"))


def until(happens, seconds=600):
    """Wait until something happens; fail where it does not for so long that it never will."""
    ends = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < ends
        time.sleep(0.02)


def running(marker):
    """Give the processes whose command line holds the marker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in content and f"/{os.getpid()}/" not in str(path):
            found.append(path)
    return found


def test_waiting_is_announced(tmp_path, scale, monkeypatch, capfd):
    import fcntl

    from opforge.build import cache as module

    monkeypatch.setattr(module, "_MESSAGE_AFTER_SECONDS", -1.0)  # at the first look: later ones may not come in time
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.1)
    opened = module.open_cache()
    with opened.lock("name", "key"):
        other = os.open(opened._folder("name", "key") / "lock", os.O_RDWR)
        with pytest.raises(module.BuildError, match=r"waited .* for another build"):
            module._acquire(other, "name")
        os.close(other)
    assert f"process {os.getpid()} is building name, waiting for it" in capfd.readouterr().err
    with open(opened._folder("name", "key") / "lock") as handle:  # noqa: PTH123 - the lock is free again
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_unwritable_cache_warns_and_still_works(scale, monkeypatch):
    operator = scale("Unwritable")
    monkeypatch.setenv("OPFORGE_CACHE", "/proc/opforge-cannot-be-here")
    with pytest.warns(RuntimeWarning, match=r"build cache /proc/opforge.* cannot be written .*set OPFORGE_CACHE"):
        path = build(operator)
    assert path.is_file()
    assert not str(path).startswith("/proc")
    np.testing.assert_array_equal(operator(np.ones(2, np.float32)), [2, 2])


def test_read_only_cache_is_read(scale, monkeypatch):
    from opforge.build import cache as module

    operator = scale("ReadOnly")
    first = build(operator)
    module._caches.clear()
    monkeypatch.setattr(module, "_unwritable", lambda root: "Read-only file system")
    with pytest.warns(RuntimeWarning, match="Read-only file system"):
        assert build(operator) == first
    module._caches.clear()


def test_default_folder_of_another_user_is_not_trusted(scale, monkeypatch, tmp_path):
    from opforge.build import cache as module

    operator = scale("Foreign")
    monkeypatch.delenv("OPFORGE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(module, "_belongs_to_another", lambda root: True)
    with pytest.warns(RuntimeWarning, match="it belongs to another user"):
        path = build(operator)
    assert not path.is_relative_to(tmp_path / "xdg")
    module._caches.clear()


def test_damaged_record_is_built_again(scale):
    operator = scale("Damaged")
    first = build(operator)
    first.with_suffix(".json").write_text("{")
    assert build(operator).is_file()
    first.unlink()
    first.with_suffix(".json").write_text('{"files": {}}')
    assert build(operator).is_file()
