#!/usr/bin/env bash
# Bundle regl-scatterplot (WebGL points, MIT) for the pages of tasks/publish/map, with the licences of what is in it.
# Versions and digests are pinned in scatterplot/package-lock.json. Needs node and npm; only who changes the version runs it.
set -euo pipefail
cd "$(dirname "$0")"
out=$PWD/../tasks/publish/map
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp scatterplot/package.json scatterplot/package-lock.json "$work"
cd "$work"
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
echo "export {default} from 'regl-scatterplot'" > entry.js
node_modules/.bin/esbuild entry.js --bundle --minify --target=es2020 --format=iife --global-name=scatterplotLibrary \
  --legal-comments=eof --log-level=warning --outfile=scatterplot.js
{
  echo "scatterplot.js holds these packages of npm, bundled and minified."
  for folder in node_modules/*/ node_modules/@flekschas/*/; do
    [ -f "$folder/package.json" ] || continue
    name=$(node -p "require('./$folder/package.json').name")
    [ "$name" = esbuild ] && continue
    printf '\n==== %s %s\n\n' "$name" "$(node -p "require('./$folder/package.json').version")"
    cat "$folder"/LICENSE*
  done
} > scatterplot.LICENSE.txt
mv scatterplot.js scatterplot.LICENSE.txt "$out"
ls -l "$out"/scatterplot.*
