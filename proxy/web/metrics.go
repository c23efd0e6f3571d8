package web

import "toolfinch/internal/telemetry"

// metrics answers the metrics.
func (s *server) metrics(q *request) (any, error) {
	body, err := s.backend.Metrics(q.Context())
	return document{contentType: telemetry.TextType, body: body}, err
}
