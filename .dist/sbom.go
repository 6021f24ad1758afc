package main

import (
	"debug/buildinfo"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bom lists the modules that the linker has recorded in the binary.
func (r release) bom(binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	product := component(&debug.Module{Path: info.Main.Path, Version: r.version})
	product.Type = cdx.ComponentTypeApplication
	product.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	libraries := []cdx.Component{component(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	references := []string{libraries[0].BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		library := component(module)
		libraries = append(libraries, library)
		references = append(references, library.BOMRef)
	}
	out := cdx.NewBOM()
	out.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &product}
	out.Components = &libraries
	out.Dependencies = &[]cdx.Dependency{{Ref: product.BOMRef, Dependencies: &references}}
	f, err := os.Create(r.path("turnpike_" + r.version + "_sbom.cdx.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(out); err != nil {
		return err
	}
	return f.Close()
}

func component(m *debug.Module) cdx.Component {
	purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
}
