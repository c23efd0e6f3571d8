package main

import "github.com/spf13/cobra"

func newServerRestart(s *settings) *cobra.Command { return &cobra.Command{Use: "restart NAME", Short: "Restart a server in the running toolfinch", RunE: func(*cobra.Command, []string) error { return nil }} }
func newServerLogs(s *settings) *cobra.Command { return &cobra.Command{Use: "logs NAME", Short: "Show what a server wrote and why it failed", RunE: func(*cobra.Command, []string) error { return nil }} }
