//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnpike/internal/api"
	"turnpike/test/npm"
)

// The tested versions of the Go generator.
const (
	oapiCodegen = "v2.8.2"
	oapiRuntime = "v1.8.0"
)

// TestGeneratorsReadTheDocument generates clients with default options, and compiles them.
func TestGeneratorsReadTheDocument(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, dir, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%.4000s", name, args, err, out)
		}
	}
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("oapi-codegen", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, filepath.Join(dir, "openapi.json"), string(api.OpenAPI()))
		write(t, filepath.Join(dir, "go.mod"), "module client\n\ngo 1.26\n")
		run(t, dir, "go", "run", "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@"+oapiCodegen, "-generate", "types,client", "-package", "client", "-o", "client.go", "openapi.json")
		run(t, dir, "go", "get", "github.com/oapi-codegen/runtime@"+oapiRuntime)
		run(t, dir, "go", "mod", "tidy")
		run(t, dir, "go", "build", ".")
	})
	modules, err := npm.Install("openapi-typescript", "@hey-api/openapi-ts", "typescript", "ajv")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "openapi.json"), string(api.OpenAPI()))
	bin := func(name string) string { return filepath.Join(modules, ".bin", name) }
	t.Run("openapi-typescript and hey-api", func(t *testing.T) {
		t.Parallel()
		run(t, dir, bin("openapi-typescript"), "openapi.json", "-o", "schema.d.ts")
		run(t, dir, bin("openapi-ts"), "-i", "openapi.json", "-o", "client")
		write(t, filepath.Join(dir, "use.ts"), `import type { components } from "./schema";
export const chat: components["schemas"]["ChatCompletionRequest"] = { model: "gpt-4o", messages: [{ role: "user", content: "hi" }] };
export const key: components["schemas"]["KeyCreate"] = { name: "ci", scopes: ["models:read"] };
`)
		run(t, dir, bin("tsc"), "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "use.ts", "client/index.ts", "client/sdk.gen.ts")
	})
	t.Run("ajv", func(t *testing.T) {
		t.Parallel()
		write(t, filepath.Join(dir, "ajv.mjs"), `import Ajv from "ajv/dist/2020.js";
import fs from "node:fs";
const ajv = new Ajv({ strict: false, validateFormats: false }); // OpenAPI's own keywords and formats
const doc = JSON.parse(fs.readFileSync("openapi.json"));
ajv.addSchema(doc, "doc");
for (const name of Object.keys(doc.components.schemas)) ajv.compile({ $ref: "doc#/components/schemas/" + name });
const credits = ajv.compile({ $ref: "doc#/components/schemas/Credits" });
for (let i = 1; i <= 100000; i++) if (!credits(i / 1e6)) throw new Error(i / 1e6 + " is rejected");
`)
		run(t, dir, "node", "ajv.mjs")
	})
}
