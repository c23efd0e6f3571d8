package web

import "toolfinch/internal/telemetry"

// metrics answers with what is counted.
func (s *server) metrics(q *request) (any, error) {
	body, err := s.backend.Metrics(q.Context())
	return document{contentType: telemetry.TextType, body: body}, err
}
