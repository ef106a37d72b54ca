"""The page in headless Chromium: no errors, no network, a phone's width, both colour schemes, keyboard, contrast."""

import os
import shutil
from importlib.util import find_spec

import pytest

from opforge.report import Report, adapted, name_origins, provenance, to_html
from tests.unit.report import results

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed (Debian: chromium fonts-dejavu-core)"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed (the extra test has it)"),
]

CONTRAST = """() => {
  // WCAG 2: contrast of every text with what lies behind it.
  const parts = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [...n.slice(0, 3), n[3] ?? 1]; };
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => { for (let e = element; e; e = e.parentElement) {
    const box = e.tagName === "g" && e.querySelector("rect");
    const colour = parts(box ? getComputedStyle(box).fill : getComputedStyle(e).backgroundColor);
    if (colour[3] > 0) return colour; } return [255, 255, 255]; };
  const bad = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parts(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    count += 1;
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className} ${node.data.slice(0, 30)}`);
  }
  return [count, bad];
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    contents = results.everything()
    name_origins(contents.values())
    sections = [adapted(content, name) for name, content in contents.items()]
    commands = [{"line": "opforge report net.onnx " + "--size batch=4 " * 20, "exit_code": 0, "seconds": 1.0}]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(to_html(Report("net.onnx", sections, provenance([], commands))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    alone = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_CHROMIUM, args=alone)
        yield started
        started.close()


@pytest.fixture
def show(browser, page_file):
    """Open the page; what the console says and what is asked of a network is collected."""
    contexts = []

    def opened(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 844}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda problem: page.said.append(str(problem)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(page_file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_errors_no_network_no_sideways_scroll_and_contrast(show, page_file, width, scheme):
    page = show(width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.said == []
    assert page.asked == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    count, bad = page.evaluate(CONTRAST)
    assert count > 300
    assert bad == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    # What scrolls by itself can be reached and named.
    loose = page.evaluate(
        "[...document.querySelectorAll('.scroll, pre')].filter((e) => e.tabIndex !== 0 || e.role !== 'region' && "
        "e.getAttribute('role') !== 'region').length"
    )
    assert loose == 0


def test_sorting_by_keyboard(show):
    page = show()
    table = page.locator("table", has=page.locator("caption, th", has_text="median ms")).first
    page.locator("details", has=table).evaluate("(d) => (d.open = true)")
    head = table.locator("th", has_text="median ms")
    assert head.get_attribute("aria-sort") == "none"
    names = table.locator("tbody th")
    assert names.all_inner_texts() == ["opforge", "onnxruntime", "openvino"]
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert names.all_inner_texts() == ["opforge", "openvino", "onnxruntime"]
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    assert names.all_inner_texts() == ["onnxruntime", "openvino", "opforge"]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the next head
    assert head.get_attribute("aria-sort") == "none"
    assert page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"


def test_keyboard_and_motion(show):
    page = show(reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    assert skip.evaluate("(e) => e === document.activeElement && e.getBoundingClientRect().left >= 0")
    assert skip.evaluate("(e) => parseFloat(getComputedStyle(e).outlineWidth)") >= 2
    page.keyboard.press("Enter")
    page.wait_for_url("**/report.html#content")  # the browser goes there in its own time


def test_what_a_screen_reader_hears(show):
    tree = show().locator("body").aria_snapshot()
    for words in (
        "- banner:",
        '- navigation "At a glance":',
        "- main:",
        "- contentinfo:",
        '- columnheader "question"',
        '- rowheader "numpy"',
        '- region "Map of errors":',
        '- img "Graph of 2 nodes',
    ):
        assert words in tree, tree[:3000]


def test_without_script_everything_is_there(show):
    page = show(java_script_enabled=False)
    assert page.locator("section.part").count() == 10
    assert page.locator("th button").count() == 0
    assert page.get_by_text("NOT THREAD-SAFE: 3 of 100 calls", exact=False).first.is_visible()
