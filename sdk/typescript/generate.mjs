// Writes the types of an OpenAPI document: node generate.mjs DOCUMENT OUTPUT
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const [input, output] = process.argv.slice(2);
const { factory } = ts;

// Responses may get values that this version doesn't know: editors suggest the known ones, and any string is valid.
const anyString = () => factory.createIntersectionTypeNode([
  factory.createKeywordTypeNode(ts.SyntaxKind.StringKeyword),
  factory.createTypeLiteralNode([]),
]);

const nodes = await openapiTS(JSON.parse(await readFile(input, "utf8")), {
  transform(schema) {
    const known = schema["x-extensible-enum"];
    if (known === undefined) return undefined;
    const values = known.map((value) => factory.createLiteralTypeNode(factory.createStringLiteral(value)));
    const nullable = [schema.type].flat().includes("null") ? [factory.createLiteralTypeNode(factory.createNull())] : [];
    return factory.createUnionTypeNode([...values, anyString(), ...nullable]);
  },
});
await writeFile(output, "// Generated from sdk/openapi.json by `make sdk`. Don't edit this file.\n\n" + astToString(nodes));
