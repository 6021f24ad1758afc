// The same request as code.

const quote = JSON.stringify;
const indent = (text, by) => text.replace(/\n/g, "\n" + by);

// pythonValue writes JSON as a Python literal.
function pythonValue(value, by = "") {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (typeof value !== "object") return quote(value);
  const inner = by + "    ", isList = Array.isArray(value);
  const parts = isList ? value.map((v) => pythonValue(v, inner)) : Object.entries(value).map(([k, v]) => `${quote(k)}: ${pythonValue(v, inner)}`);
  if (!parts.length) return isList ? "[]" : "{}";
  return `${isList ? "[" : "{"}\n${parts.map((p) => inner + p + ",\n").join("")}${by}${isList ? "]" : "}"}`;
}

const pythonArguments = (body) => Object.entries(body).map(([k, v]) => `    ${k}=${pythonValue(v, "    ")},\n`).join("");

// scriptValue writes JSON as a TypeScript literal.
const scriptValue = (value) => quote(value, null, 2).replace(/^(\s*)"([A-Za-z_]\w*)":/gm, "$1$2:");

// goString writes a Go string, raw if it can be.
const goString = (text) => text.includes("`") ? quote(text) : "`" + text + "`";

const python = {
  chat: (body) => body.stream
    ? `stream = client.chat.completions.create(\n${pythonArguments(body)})\nfor chunk in stream:\n    if chunk.choices and chunk.choices[0].delta.content:\n        print(chunk.choices[0].delta.content, end="", flush=True)\n`
    : `response = client.chat.completions.create(\n${pythonArguments(body)})\nprint(response.choices[0].message.content)\n`,
  images: (body) => `response = client.images.generate(\n${pythonArguments(body)})\nfor i, image in enumerate(response.data):\n    with open(f"image-{i + 1}.png", "wb") as file:\n        file.write(base64.b64decode(image.b64_json))\n`,
  speech: (body) => `with client.audio.speech.with_streaming_response.create(\n${pythonArguments(body)}) as response:\n    response.stream_to_file("speech.${body.response_format}")\n`,
};

const typescript = {
  chat: (body) => body.stream
    ? `const stream = await client.chat.completions.create(${scriptValue(body)});\nfor await (const chunk of stream) {\n  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n}\n`
    : `const response = await client.chat.completions.create(${scriptValue(body)});\nconsole.log(response.choices[0].message.content);\n`,
  images: (body) => `const response = await client.images.generate(${scriptValue(body)});\nfor (const [i, image] of response.data!.entries()) {\n  await writeFile(\`image-\${i + 1}.png\`, Buffer.from(image.b64_json!, "base64"));\n}\n`,
  speech: (body) => `const response = await client.audio.speech.create(${scriptValue(body)});\nawait writeFile("speech.${body.response_format}", Buffer.from(await response.arrayBuffer()));\n`,
};

const goCalls = {
  chat: ["ChatCompletionNewParams", (body) => body.stream
    ? `\tstream := client.Chat.Completions.NewStreaming(context.Background(), params)\n\tfor stream.Next() {\n\t\tif chunk := stream.Current(); len(chunk.Choices) > 0 {\n\t\t\tfmt.Print(chunk.Choices[0].Delta.Content)\n\t\t}\n\t}\n\tif err := stream.Err(); err != nil {\n\t\tlog.Fatal(err)\n\t}\n`
    : `\tresponse, err := client.Chat.Completions.New(context.Background(), params)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tfmt.Println(response.Choices[0].Message.Content)\n`, ["fmt"]],
  images: ["ImageGenerateParams", () => `\tresponse, err := client.Images.Generate(context.Background(), params)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tfor i, image := range response.Data {\n\t\tdata, err := base64.StdEncoding.DecodeString(image.B64JSON)\n\t\tif err != nil {\n\t\t\tlog.Fatal(err)\n\t\t}\n\t\tif err := os.WriteFile(fmt.Sprintf("image-%d.png", i+1), data, 0o644); err != nil {\n\t\t\tlog.Fatal(err)\n\t\t}\n\t}\n`, ["encoding/base64", "fmt"]],
  speech: ["AudioSpeechNewParams", (body) => `\tresponse, err := client.Audio.Speech.New(context.Background(), params)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tdefer response.Body.Close()\n\tfile, err := os.Create("speech.${body.response_format}")\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n\tdefer file.Close()\n\tif _, err := io.Copy(file, response.Body); err != nil {\n\t\tlog.Fatal(err)\n\t}\n`, ["io"]],
};

const languages = {
  curl: (kind, body) => `curl ${config.base_url}${kinds[kind].path} \\\n  -H "Authorization: Bearer $TURNPIKE_API_KEY" \\\n  -H "Content-Type: application/json" \\\n` +
    `  ${kind === "speech" ? `--output speech.${body.response_format} ` : ""}-d '${quote(body, null, 2).replaceAll("'", "'\\''")}'\n`,
  python: (kind, body) => `${kind === "images" ? "import base64\n" : ""}import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${quote(config.base_url + "/v1")}, api_key=os.environ["TURNPIKE_API_KEY"])\n\n${python[kind](body)}`,
  typescript: (kind, body) => `${kind === "chat" ? "" : 'import { writeFile } from "node:fs/promises";\n\n'}import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: ${quote(config.base_url + "/v1")}, apiKey: process.env.TURNPIKE_API_KEY });\n\n${typescript[kind](body)}`,
  go: (kind, body) => {
    const [type, call, imports] = goCalls[kind];
    const { stream: _, ...params } = body; // NewStreaming sets it
    const standard = ["context", "encoding/json", "log", "os", ...imports].sort().map((name) => `\t"${name}"\n`).join("");
    return `package main\n\nimport (\n${standard}\n\t"github.com/openai/openai-go/v3"\n\t"github.com/openai/openai-go/v3/option"\n\t"github.com/openai/openai-go/v3/packages/param"\n)\n\nfunc main() {\n` +
      `\tclient := openai.NewClient(option.WithBaseURL(${quote(config.base_url + "/v1/")}), option.WithAPIKey(os.Getenv("TURNPIKE_API_KEY")))\n` +
      `\tparams := param.Override[openai.${type}](json.RawMessage(${goString(indent(quote(params, null, 2), "\t"))}))\n${call(body)}}\n`;
  },
};

let language = "curl";

function showCode() {
  const kind = kinds[state.tab];
  let body;
  try {
    body = kind.body(kind.models()[0]);
  } catch (problem) {
    showProblem(problem);
    return;
  }
  delete body.stream_options; // only for the page's own counts
  const full = JSON.stringify(body), short = full.replace(/data:[\w/+.-]+;base64,[A-Za-z0-9+/=]{80,}/g, (url) => url.slice(0, 40) + "…");
  byID("snippet").textContent = languages[language](state.tab, JSON.parse(short));
  byID("snippet-note").textContent = (full === short ? "" : "Attached images are shortened. ") + "Set TURNPIKE_API_KEY to a key of this workspace.";
  byID("snippet-panel").setAttribute("aria-labelledby", "pg-language-" + language);
  if (!byID("dialog").open) byID("dialog").showModal();
}

byID("code").addEventListener("click", showCode);
byID("dialog-close").addEventListener("click", () => byID("dialog").close());
byID("dialog").addEventListener("click", (event) => { if (event.target === byID("dialog")) byID("dialog").close(); });
