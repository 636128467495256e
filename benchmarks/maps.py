"""What a map of points costs: the file's size, the seconds to write and to open it, and the time of a frame.

    python -m benchmarks.maps [--points 1000000] [--keep map.html]

The points are twelve clouds with ids as text, a category, a number and a day each. The page is opened from disk in
headless Chromium; without a GPU its renderer is SwiftShader, on CPUs, and the frame time says nothing of a real screen.
A frame is the time between two frames in which the camera moved; the median over 20.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from tasks.publish.map.page import Points, write_map

RENDERER = """() => {
  const gl = document.createElement('canvas').getContext('webgl');
  const names = gl.getExtension('WEBGL_debug_renderer_info');
  return gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
}"""
FRAMES = """async () => {
  const plot = graphmillMap.plot, times = [];
  for (let i = 0; i < 21; i++) {
    const start = performance.now(), drawn = new Promise((done) => plot.subscribe('draw', done, 1));
    plot.zoomToLocation([0.01 * (i % 3), 0], 1 - 0.01 * (i % 2)); await drawn;
    // What was asked of the renderer is done once a pixel can be read.
    const gl = plot.get('regl')._gl; gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    times.push(performance.now() - start);
  }
  return times.slice(1);
}"""


def clouds(count: int) -> Points:
    generator = np.random.default_rng(0)
    cloud = generator.integers(0, 12, count)
    centers = generator.normal(size=(12, 2)) * 6
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 700, count), "D")
    columns = {
        "cloud": np.array([f"cloud {k}" for k in range(12)])[cloud],
        "score": generator.random(count).astype(np.float32).round(3),
        "day": days,
    }
    ids = [f"paper-{i:07d}" for i in generator.permutation(count)]
    return Points(f"{count:,} points", centers[cloud] + generator.normal(size=(count, 2)), ids, columns, color="cloud")


def opened(path: Path) -> tuple[float, list[float], str]:
    """Return the seconds until the page has drawn its points, milliseconds of frames and the renderer's name."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1300, "height": 850})
        page.set_default_timeout(300_000)
        start = time.perf_counter()
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("body[data-state=ready]")
        seconds = time.perf_counter() - start
        result = seconds, page.evaluate(FRAMES), page.evaluate(RENDERER)
        browser.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="where the page is left")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "map.html"
        points = clouds(args.points)
        start = time.perf_counter()
        size = write_map(points, path)
        print(
            f"{args.points:,} points: {size / 1e6:.2f} MB, written in {time.perf_counter() - start:.1f} s", flush=True
        )
        seconds, frames, renderer = opened(path)
    print(f"opened in {seconds:.1f} s, a frame takes {statistics.median(frames):.0f} ms on {renderer}")


if __name__ == "__main__":
    main()
