package cli

import (
	"fmt"
	"strings"
)

// liteLLMCloud has the parameters of models on Amazon Bedrock and Vertex AI. Keys of AWS come from the standard
// variables and files.
type liteLLMCloud struct {
	Region      string `yaml:"aws_region_name"`
	Profile     string `yaml:"aws_profile_name"`
	Project     string `yaml:"vertex_project"`
	Location    string `yaml:"vertex_location"`
	Credentials string `yaml:"vertex_credentials"` // a file, or its content
}

type turnpikeSignIn struct {
	With            string `yaml:"with"`
	CredentialsFile string `yaml:"credentials_file,omitempty"`
	Profile         string `yaml:"profile,omitempty"`
}

const (
	liteLLMBedrock = "bedrock"
	liteLLMVertex  = "vertex_ai"
)

// isCloud reports whether models with a prefix need a sign-in instead of a key.
func isCloud(prefix string) bool { return prefix == liteLLMBedrock || prefix == liteLLMVertex }

// translate returns the provider of a cloud's model, or why it has no equivalent. It removes the API from the model's name.
func (c liteLLMCloud) translate(prefix string, name *string) (v vendor, signIn *turnpikeSignIn, problem string) {
	for _, field := range []struct{ name, value string }{{"aws_region_name", c.Region}, {"aws_profile_name", c.Profile}, {"vertex_project", c.Project}, {"vertex_location", c.Location}, {"vertex_credentials", c.Credentials}} {
		if strings.HasPrefix(field.value, "os.environ/") {
			return v, nil, fmt.Sprintf("its %s is in a variable. Write the value, or add the provider yourself", field.name)
		}
	}
	if prefix == liteLLMBedrock {
		*name = strings.TrimPrefix(strings.TrimPrefix(*name, "converse/"), "invoke/")
		if c.Region == "" {
			return v, nil, "it has no aws_region_name. Add one, or add the provider yourself"
		}
		return vendor{"bedrock", "https://bedrock-runtime." + c.Region + ".amazonaws.com"}, &turnpikeSignIn{With: "aws", Profile: c.Profile}, ""
	}
	if c.Project == "" || c.Location == "" {
		return v, nil, "it has no vertex_project or vertex_location. Add them, or add the provider yourself"
	}
	if strings.HasPrefix(strings.TrimSpace(c.Credentials), "{") {
		return v, nil, "its vertex_credentials are in the file. Write them to another file, and name that"
	}
	host, publisher, kind := c.Location+"-aiplatform.googleapis.com", "google", "gemini"
	if c.Location == "global" {
		host = "aiplatform.googleapis.com"
	}
	switch {
	case strings.HasPrefix(*name, "claude"):
		publisher, kind = "anthropic", "anthropic"
	case !strings.HasPrefix(*name, "gemini"):
		return v, nil, "of Vertex AI, Turnpike has Gemini and Claude"
	}
	address := fmt.Sprintf("https://%s/v1/projects/%s/locations/%s/publishers/%s", host, c.Project, c.Location, publisher)
	return vendor{kind, address}, &turnpikeSignIn{With: "google", CredentialsFile: c.Credentials}, ""
}
