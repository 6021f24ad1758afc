package config

import (
	"net/url"
	"reflect"
)

// Secrets returns every secret value of the settings, to remove them from text.
// Of a URL, these are the password and the masked parameters.
func (c Config) Secrets() (out []string) {
	collectSecrets(reflect.ValueOf(c), &out)
	return out
}

func collectSecrets(v reflect.Value, out *[]string) {
	switch value := v.Interface().(type) {
	case Secret:
		*out = append(*out, string(value))
		return
	case SecretURL:
		*out = append(*out, urlSecrets(string(value))...)
		return
	case Address:
		*out = append(*out, urlSecrets(string(value))...)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				collectSecrets(v.Field(i), out)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			collectSecrets(v.Index(i), out)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			collectSecrets(v.MapIndex(key), out)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			collectSecrets(v.Elem(), out)
		}
	}
}

// urlSecrets returns the secret parts of a URL, or all of it if it can't be parsed.
func urlSecrets(text string) (out []string) {
	u, err := url.Parse(text)
	if err != nil {
		return []string{text}
	}
	if password, ok := u.User.Password(); ok {
		out = append(out, password)
	}
	for key, values := range u.Query() {
		if maskQuery(key+"=x") != key+"=x" {
			out = append(out, values...)
		}
	}
	return out
}
