package store

import (
	"context"
	"crypto/sha256"

	"toolfinch/tool"
)

const (
	// presentKeys selects the principals of keys that have not expired at $2.
	presentKeys = `(SELECT id FROM keys WHERE expires = 0 OR expires > $2)`
	// selectGone selects the principals of absent keys that still have data. Results and sessions expire by
	// themselves.
	selectGone = `
		SELECT substr(owner, $4) FROM provisions WHERE owner LIKE $3 AND substr(owner, $4) NOT IN ` + presentKeys + `
		UNION SELECT principal FROM learned WHERE principal LIKE $1 AND principal NOT IN ` + presentKeys + `
		UNION SELECT principal FROM called WHERE principal LIKE $1 AND principal NOT IN ` + presentKeys
)

// forget drops the data of a principal, except its logins.
func forget(ctx context.Context, tx *txn, id string) error {
	owner := tool.PrincipalOwner(id)
	hash := sha256.Sum256([]byte(owner)) // the key of stored results
	for _, drop := range []struct {
		statement string
		by        any
	}{
		{`DELETE FROM provisions WHERE owner = $1`, owner},
		{`DELETE FROM outputs WHERE owner = $1`, hash[:]},
		{`DELETE FROM learned WHERE principal = $1`, id},
		{`DELETE FROM called WHERE principal = $1`, id},
	} {
		if _, err := tx.ExecContext(ctx, drop.statement, drop.by); err != nil {
			return err
		}
	}
	if !tx.postgres { // SQLite has no sessions
		return nil
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM sessions WHERE principal = $1`, id)
	return err
}
