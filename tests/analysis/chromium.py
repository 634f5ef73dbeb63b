"""Open HTML files in a headless Chromium and let a script look at them."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # what the page needs must be in it
    "--virtual-time-budget=60000",
    "--window-size=1250,1000",
)
COLLECT = """<script>
window.noted = {errors: []};
const note = (text) => noted.errors.push(String(text));
window.addEventListener("error", e => note(e.message || "not loaded: " + (e.target.src || "").slice(0, 80)), true);
window.addEventListener("unhandledrejection", e => note(e.reason));
const tell = console.error; console.error = (...a) => { note(a.join(" ")); tell(...a); };
</script>"""


def browser() -> str:
    """Path of Chromium; the test skips where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium (Debian: apt-get install chromium)")
    return found


def look(page: Path, script: str) -> dict[str, Any]:
    """Run a script in a page after it has loaded.

    Parameters
    ----------
    page : Path
    script : str
        Body of an async function; it adds to the object ``noted``, whose list ``errors`` holds the console's errors.

    Returns
    -------
    dict
        ``noted``, with the errors that Chromium itself reports among the errors.
    """
    program = browser()
    ending = f"""<script>window.addEventListener("load", async () => {{
        const wait = (ms) => new Promise(done => setTimeout(done, ms));
        try {{ {script} }} catch (error) {{ noted.errors.push("script: " + error); }}
        const out = document.createElement("pre"); out.id = "noted"; out.textContent = JSON.stringify(noted);
        document.body.replaceChildren(out);
    }});</script>"""
    html = page.read_text(encoding="utf-8")
    head = html.index("<head>") + len("<head>")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "page.html")
        copy.write_text(html[:head] + COLLECT + html[head:] + ending, encoding="utf-8")
        command = [program, *FLAGS, f"--user-data-dir={folder}/profile", "--enable-logging=stderr", "--dump-dom"]
        done = subprocess.run([*command, copy.as_uri()], capture_output=True, text=True, timeout=240, check=True)
    match = re.search(r'<pre id="noted">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, f"the script did not end: {done.stderr[-2000:]}"
    text = match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    noted = json.loads(text)
    noted["errors"] += [line for line in done.stderr.splitlines() if ":ERROR:CONSOLE" in line]
    return noted
