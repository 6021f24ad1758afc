package api

import "net/http"

// tokenLists is how many times as many values a body has that may be lists of
// tokens, a number each.
const tokenLists = 5

func createEmbeddings(c *Call) error {
	body, err := c.readValues(c.s.Limits.ModelBody, tokenLists*c.s.Limits.JSONValues)
	if err != nil {
		return err
	}
	if err := c.still(); err != nil {
		return err
	}
	answer, err := c.s.Gateway.Embeddings(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	c.success = append(c.success, headerLine{"Service-Model", answer.Model}, headerLine{"Service-Provider", answer.Provider},
		headerLine{"Service-Credits", answer.Credits.String()})
	c.send(http.StatusOK, jsonType, answer.Body)
	return nil
}
