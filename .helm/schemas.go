// Command schemas writes JSON schemas of Kubernetes objects for kubeconform. They
// come from the Go types, so that the chart can be checked without a network.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type schema map[string]any

// objects are the kinds that the chart has, by kubeconform's file name.
var objects = map[string]any{
	"configmap-v1":                           core.ConfigMap{},
	"service-v1":                             core.Service{},
	"serviceaccount-v1":                      core.ServiceAccount{},
	"deployment-apps-v1":                     apps.Deployment{},
	"statefulset-apps-v1":                    apps.StatefulSet{},
	"horizontalpodautoscaler-autoscaling-v2": autoscaling.HorizontalPodAutoscaler{},
	"ingress-networking-v1":                  networking.Ingress{},
	"networkpolicy-networking-v1":            networking.NetworkPolicy{},
	"poddisruptionbudget-policy-v1":          policy.PodDisruptionBudget{},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: schemas DIRECTORY")
	}
	if err := os.MkdirAll(os.Args[1], 0o755); err != nil {
		log.Fatal(err)
	}
	for name, object := range objects {
		root := of(reflect.TypeOf(object))
		root["required"] = []string{"apiVersion", "kind", "metadata"}
		text, err := json.Marshal(root)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name+".json"), text, 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// of returns the schema of a type. Unknown fields are errors.
func of(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return schema{"type": []string{"integer", "string"}}
	case reflect.TypeFor[resource.Quantity]():
		return schema{"type": []string{"number", "string"}}
	case reflect.TypeFor[meta.Time](), reflect.TypeFor[meta.MicroTime]():
		return schema{"type": []string{"string", "null"}}
	case reflect.TypeFor[meta.FieldsV1]():
		return schema{"type": "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return of(t.Elem())
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int32, reflect.Int64, reflect.Int:
		return schema{"type": "integer"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return schema{"type": "string"}
		}
		return schema{"type": "array", "items": of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": of(t.Elem())}
	case reflect.Struct:
		properties := schema{}
		addFields(t, properties)
		return schema{"type": "object", "properties": properties, "additionalProperties": false}
	}
	panic("no schema for " + t.String())
}

func addFields(t reflect.Type, properties schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			addFields(f.Type, properties)
		case name != "" && name != "-":
			properties[name] = of(f.Type)
		}
	}
}
