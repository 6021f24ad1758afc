//go:build ignore

// This program writes vocabulary.bin.gz from the tokenizer module's o200k_base:
// every token in the order of its rank, as one byte of length and its bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"log"
	"os"

	"github.com/tiktoken-go/tokenizer/codec"
)

func main() {
	module := codec.NewO200kBase()
	var out []byte
	for rank := uint(0); ; rank++ {
		token, err := module.Decode([]uint{rank})
		if err != nil { // ranks are dense: the first unknown one is past the end
			break
		}
		if len(token) > 255 {
			log.Fatalf("token %d has %d bytes", rank, len(token))
		}
		out = append(out, byte(len(token)))
		out = append(out, token...)
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = z.Write(out) // memory accepts all
	_ = z.Close()
	if err := os.WriteFile("vocabulary.bin.gz", packed.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
