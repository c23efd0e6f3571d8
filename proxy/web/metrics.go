package web

import "toolfinch/internal/telemetry"

func (s *server) metrics(q *request) (any, error) {
	body, err := s.backend.Metrics(q.Context())
	return document{contentType: telemetry.TextType, body: body}, err
}
