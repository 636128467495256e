"""What maps of points cost: the file's size, seconds to write and to open it, milliseconds of frames and of each act.

    python -m benchmarks.maps [--points 100000 1000000] [--dimensions 2] [--ratio 1] [--keep FOLDER]

The points are twelve clouds with ids as text, a category, a number and a day each. The page is opened from disk in
headless Chromium; without a GPU its renderer is SwiftShader, on CPUs, and the frames say little of a real screen.

- first frame: seconds from the address until points are seen; whole: until all are drawn.
- move: milliseconds a frame takes while the camera moves, and of how many points it is made (the page takes a sample
  that the renderer can draw in time); rest: until all points are drawn after the last move.
- all points: milliseconds of one frame of all of them, as no user waits for: `script` is what the page's own code and
  the driver take of it before the renderer works; on a GPU the rest is short.
- acts: milliseconds until it is done, and the longest time in which the page could not answer.
- pictures: seconds and size of the same points for a paper, 7 inches wide at 300 dots an inch.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tasks.publish.map.columns import MapPoints
from tasks.publish.map.of_run import write_map
from tasks.publish.map.picture import draw_map

if TYPE_CHECKING:
    from playwright.sync_api import Page

RENDERER = """() => {
  const gl = document.createElement('canvas').getContext('webgl');
  const names = gl.getExtension('WEBGL_debug_renderer_info');
  return gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
}"""
# Messages to itself come as soon as the page is free: the longest gap is the longest time it was not.
WATCH = """() => {
  const channel = new MessageChannel(), watch = window.watch = { worst: 0, last: performance.now(), going: true };
  channel.port1.onmessage = () => {
    const now = performance.now(); watch.worst = Math.max(watch.worst, now - watch.last); watch.last = now;
    if (watch.going) channel.port2.postMessage(0);
  };
  channel.port2.postMessage(0);
}"""
WORST = "() => { watch.going = false; return watch.worst; }"
MOVING = """async (zooming) => {
  const view = graphmillMap.view, parts = [], next = () => new Promise(requestAnimationFrame);
  await view.whole();
  for (let i = 0; i < 30; i++) { view.move(0.1 * (i % 2 ? 1 : -1), 0); await next(); }  // the page learns its pace
  const before = view.frame().moved, start = performance.now();
  while (performance.now() - start < 3000) {
    const sign = parts.length % 2 ? 1 : -1;
    if (zooming) view.move(0, 0, 1 + 0.02 * sign); else view.move(0.05 * sign, 0);
    await next(); parts.push(Math.min(view.frame().budget, graphmillMap.ids.length));
  }
  const taken = (performance.now() - start) / (view.frame().moved - before), last = performance.now();
  await view.whole();
  return [taken, parts.sort((a, b) => a - b)[parts.length >> 1], performance.now() - last];
}"""
ALL_POINTS = """() => {
  const { renderer, scene, camera, geometry } = graphmillMap.view, gl = renderer.getContext(), times = [], scripts = [];
  for (let i = 0; i < 6; i++) {
    const start = performance.now();
    geometry.setDrawRange(0, graphmillMap.ids.length); renderer.clear(); renderer.render(scene, camera);
    scripts.push(performance.now() - start);
    // What was asked of the renderer is done once a pixel can be read.
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    times.push(performance.now() - start);
  }
  return [times.sort((a, b) => a - b)[2], scripts.sort((a, b) => a - b)[2]];
}"""


def clouds(count: int, dimensions: int = 2) -> MapPoints:
    generator = np.random.default_rng(0)
    cloud = generator.integers(0, 12, count)
    centers = generator.normal(size=(12, dimensions)) * 6
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 700, count), "D")
    columns = {
        "cloud": np.array([f"cloud {k}" for k in range(12)])[cloud],
        "score": generator.random(count).astype(np.float32).round(3),
        "day": days,
    }
    ids = [f"paper-{i:07d}" for i in generator.permutation(count)]
    places = centers[cloud] + generator.normal(size=(count, dimensions))
    return MapPoints(f"{count:,} points", places, ids, columns, color="cloud")


def timed(page: Page, name: str, act: Callable[[], Any]) -> None:
    page.evaluate("graphmillMap.view.whole()")
    page.evaluate(WATCH)
    start = time.perf_counter()
    act()
    seconds = time.perf_counter() - start
    page.evaluate("graphmillMap.view.whole()")
    print(f"  {name:12} {seconds * 1000:6.0f} ms, page held up {page.evaluate(WORST):5.0f} ms", flush=True)


def acts(page: Page, count: int) -> None:
    def lasso() -> None:
        page.keyboard.press("l")
        page.mouse.move(200, 200)
        page.mouse.down()
        for place in ((800, 200), (800, 600), (300, 700)):
            page.mouse.move(*place)
        page.mouse.up()
        page.wait_for_selector("#chosen:not([hidden])")

    def search(text: str, outcome: str) -> None:
        page.fill("#search", text)
        page.get_by_text(outcome, exact=True).wait_for()

    def sort() -> None:
        page.click("#table th button >> text=score")
        page.wait_for_selector("#table th[aria-sort=ascending]")

    last = f"paper-{count - 1:07d}"
    timed(
        page,
        "recolour",
        lambda: (page.select_option("#color", "score"), page.wait_for_selector("body[data-color=score]")),
    )
    timed(page, "filter", lambda: (page.fill("[data-limit=least]", "0.5"), page.press("[data-limit=least]", "Enter")))
    page.select_option("#color", "cloud")
    timed(page, "search", lambda: search(last, last))
    timed(page, "search again", lambda: search("none such", "no id holds this"))
    page.focus("#stage")
    timed(page, "hover", lambda: page.mouse.move(500, 450))
    timed(page, "lasso", lasso)
    timed(page, "table", lambda: (page.keyboard.press("b"), page.wait_for_selector("#table tbody tr")))
    page.select_option("#table select", "all")
    timed(page, "sort", sort)


def measure(path: Path, count: int, ratio: float) -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1300, "height": 850}, device_scale_factor=ratio)
        page.set_default_timeout(300_000)
        start = time.perf_counter()
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("body[data-state=ready]")
        page.evaluate("new Promise(requestAnimationFrame)")
        first = time.perf_counter() - start
        page.evaluate("graphmillMap.view.whole()")
        print(f"  first frame after {first:.1f} s, whole after {time.perf_counter() - start:.1f} s, renderer:")
        print(f"  {page.evaluate(RENDERER)}, {ratio:g} pixels a CSS pixel", flush=True)
        for name, zooming in (("move", False), ("zoom", True)):
            taken, part, rest = page.evaluate(MOVING, zooming)
            print(f"  {name:12} {taken:6.0f} ms a frame of {part:,} points, rest {rest:.0f} ms", flush=True)
        runs = [page.evaluate(ALL_POINTS) for _ in range(2)]
        whole, script = (statistics.median(run[k] for run in runs) for k in range(2))
        print(f"  all points   {whole:6.0f} ms a frame, script {script:.1f} ms", flush=True)
        acts(page, count)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dimensions", type=int, choices=(2, 3), default=2)
    parser.add_argument("--ratio", type=float, default=1, help="device pixels of a CSS pixel")
    parser.add_argument("--keep", type=Path, help="folder in which the pages are left")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for count in args.points:
            path = (args.keep or Path(folder)) / f"map-{count}.html"
            points = clouds(count, args.dimensions)
            start = time.perf_counter()
            size = write_map(points, path)
            seconds = time.perf_counter() - start
            print(f"{count:,} points, {args.dimensions}-D: {size / 1e6:.2f} MB, written in {seconds:.1f} s", flush=True)
            measure(path, count, args.ratio)
            for suffix in (".png", ".svg"):
                start = time.perf_counter()
                draw_map(points, path.with_suffix(suffix))
                seconds, size = time.perf_counter() - start, path.with_suffix(suffix).stat().st_size
                print(f"  {suffix[1:]}          {seconds:6.1f} s, {size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    main()
