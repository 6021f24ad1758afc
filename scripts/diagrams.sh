#!/bin/sh
# Renders every Mermaid diagram of docs/ as docs/diagrams/HASH.svg, so that /docs shows it without JavaScript. HASH is the
# beginning of the SHA-256 of the diagram's source: a test fails while a changed diagram has no image.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find docs -name '*.md' -exec awk -v dir="$work" '
	/^```$/ { close(file); file = "" }
	file { print > file }
	/^```mermaid$/ { file = dir "/" ++n ".mmd" }' {} +
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
echo "{\"executablePath\": \"$browser\", \"args\": [\"--no-sandbox\"]}" >"$work/browser.json"
echo '{"theme": "neutral", "htmlLabels": false, "flowchart": {"htmlLabels": false, "wrappingWidth": 320, "rankSpacing": 36, "nodeSpacing": 30}, "fontFamily": "Inter, Helvetica, Arial, sans-serif", "deterministicIds": true}' >"$work/mermaid.json"

rm -f docs/diagrams/*.svg
mkdir -p docs/diagrams
for source in "$work"/*.mmd; do
	hash=$(sha256sum "$source" | cut -c 1-8)
	PUPPETEER_SKIP_DOWNLOAD=1 npx --yes --package @mermaid-js/mermaid-cli@12.2.0 mmdc --quiet --puppeteerConfigFile "$work/browser.json" \
		--configFile "$work/mermaid.json" --svgId "d$hash" --input "$source" --output "docs/diagrams/$hash.svg"
	# An image needs its size, or browsers scale it to the width of the page.
	sed -i -E '1s/width="100%"([^>]*viewBox="[^ ]+ [^ ]+ ([0-9.]+) ([0-9.]+)")/width="\2" height="\3"\1/' "docs/diagrams/$hash.svg"
done
