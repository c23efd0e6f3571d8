package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	openai "github.com/sashabaranov/go-openai"
)

// maxSaid bounds the answer of a chat, in bytes with all around it.
const maxSaid = 256 << 10

// Chat asks the model of an endpoint with OpenAI's chat API. It embeds nothing, but
// shares what is known of such endpoints: their errors, bounds and repetitions.
type Chat struct{ remote *remote }

// OpenChat returns a Chat with s.Model, for which there is no default. Of the other
// settings the key and the base URL count. Close frees it.
func OpenChat(s OpenAI, log *slog.Logger) (*Chat, error) {
	if s.Model == "" {
		return nil, errors.New("no model is named")
	}
	r, err := openRemote(s, log)
	if err != nil {
		return nil, err
	}
	return &Chat{r}, nil
}

// Close closes connections.
func (c *Chat) Close() error { return c.remote.Close() }

// Ask returns what the model answers to user under the rules of system. What fails
// for a moment is repeated a few times. Errors show no key.
func (c *Chat) Ask(ctx context.Context, system, user string) (said string, err error) {
	err = c.remote.repeat(ctx, maxTries, func() (failed *failure) {
		said, failed = c.attempt(ctx, system, user)
		return failed
	})
	if err != nil {
		return "", fmt.Errorf("ask %s at %s: %w", c.remote.settings.Model, c.remote.endpoint, err)
	}
	return said, nil
}

// attempt sends one request. It asks for no temperature and no length: some models
// refuse these.
func (c *Chat) attempt(ctx context.Context, system, user string) (string, *failure) {
	r := c.remote
	x := &exchange{http: r.http, most: maxSaid}
	config := openai.DefaultConfig(string(r.settings.APIKey))
	config.BaseURL, config.HTTPClient = r.settings.BaseURL, x
	answer, err := openai.NewClientWithConfig(config).CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: r.settings.Model,
		Messages: []openai.ChatCompletionMessage{
			{Role: openai.ChatMessageRoleSystem, Content: system},
			{Role: openai.ChatMessageRoleUser, Content: user},
		},
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", &failure{err: context.Cause(ctx)}
	case err != nil && x.broken:
		return "", &failure{err: r.veil(err), transient: true}
	case err != nil:
		return "", r.refused(err, x.after)
	case len(answer.Choices) == 0:
		return "", &failure{err: errors.New("the answer has no choices (check the base URL: most end with /v1)")}
	}
	return answer.Choices[0].Message.Content, nil
}
