#!/usr/bin/env bash
# Bundle what the pages of tasks/publish/map take of three.js (MIT): WebGL points, cameras, and their control by mouse, touch
# and keyboard. Versions and digests are pinned in scatterplot/package-lock.json. Needs node and npm; only who changes the
# version runs it. scatterplot.sh [FOLDER] writes there instead.
set -euo pipefail
out=$(realpath "${1:-$(dirname "$0")/../tasks/publish/map}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp scatterplot/package.json scatterplot/package-lock.json scatterplot/entry.js "$work"
cd "$work"
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
node_modules/.bin/esbuild entry.js --bundle --minify --target=es2020 --format=iife --global-name=scatterplotLibrary \
  --legal-comments=eof --log-level=warning --outfile=scatterplot.js
{
  echo "This page holds three.js $(node -p "require('./node_modules/three/package.json').version") (https://threejs.org), bundled and minified."
  echo
  cat node_modules/three/LICENSE
} > scatterplot.LICENSE.txt
mv scatterplot.js scatterplot.LICENSE.txt "$out"
ls -l "$out"/scatterplot.*
