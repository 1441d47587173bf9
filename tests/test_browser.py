"""Layer 4: a student's first minute in a real JupyterLab (needs a chromium)."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
]
KERNEL = (
    "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
)
WAIT_MS = 120_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="browser layer NOT RUN: no chromium"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Address of a JupyterLab on a copy of the student notebooks, and its folder."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copy(ROOT / "notebooks/00_start_here.ipynb", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser"]
    command += ["--ip=127.0.0.1", f"--port={port}", f"--ServerApp.token={token}"]
    command += ["--ServerApp.allow_root=True", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    places = {"JUPYTER_CONFIG_PATH": str(ROOT), "GPU_LAB_RUNS": str(folder / "runs")}
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            command, env=os.environ | places, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api?token={token}", server)
        yield address, token, folder
    finally:
        server.terminate()
        server.wait(20)


def _wait_for(address: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail("JupyterLab did not start within 60 s")


@pytest.fixture(scope="module")
def page(lab):
    """00_start_here, opened, run from top to bottom."""
    address, token, _folder = lab
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(WAIT_MS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(
            f"{address}/lab/workspaces/test/tree/00_start_here.ipynb?reset&token={token}"
        )
        # The notebook's own indicator says idle before there is a kernel.
        page.wait_for_function(f"{KERNEL} === 'idle'")
        page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_function(
            "Array.from(document.querySelectorAll('.jp-InputPrompt'))"
            ".every(p => !p.textContent.includes('*'))"
            " && document.body.innerText.includes('7 checks')"
            f" && {KERNEL} === 'idle'"
        )
        yield page, errors
        browser.close()


def test_run_all_gives_a_verdict_pictures_and_no_error(page):
    shown, errors = page
    texts = shown.locator(".jp-OutputArea-output").all_inner_texts()
    assert any("00_start_here: 7 checks" in text for text in texts)
    assert not any("NOT OK" in text or "Traceback" in text for text in texts)
    assert any(text.startswith("TODO  first_rungs") for text in texts)
    assert errors == []


def test_pictures_show_and_keep_their_alt_text(page):
    shown, _errors = page
    images = shown.locator(".jp-OutputArea-output figure img")
    assert images.count() >= 2
    for image in images.all():
        assert image.get_attribute("alt")
        assert image.evaluate("i => i.naturalWidth") > 300


def test_no_news_pop_up_covers_the_corner(page):
    shown, _errors = page
    assert shown.locator(".Toastify__toast").count() == 0


def test_the_record_is_on_disk(page, lab):
    _address, _token, folder = lab
    assert list((folder / "runs/lab/sessions").glob("00_start_here*.json"))
