#!/bin/sh
# Updates the clients that `make clients` and the guides run: the dependencies in test/npm/package.json, and the client
# modules in go.mod. devDependencies are tools, which stay at their versions. Needs npm.
set -eu
cd "$(dirname "$0")/.."

for package in $(node -p 'Object.keys(require("./test/npm/package.json").dependencies).join(" ")'); do
	version=$(npm view "$package" version)
	node -e '
		const [file, name, version] = process.argv.slice(1), fs = require("node:fs"), manifest = JSON.parse(fs.readFileSync(file));
		if (manifest.dependencies[name] !== version) console.log(`${name} ${manifest.dependencies[name]} => ${version}`);
		manifest.dependencies[name] = version;
		fs.writeFileSync(file, JSON.stringify(manifest, null, 2) + "\n");' test/npm/package.json "$package" "$version"
done

go get github.com/openai/openai-go/v3@latest
go mod tidy
cd test/sdk/goclients
go get github.com/anthropics/anthropic-sdk-go/v2@latest github.com/sashabaranov/go-openai@latest
go mod tidy
cd ../../..
go test -count=1 ./test/npm -update
