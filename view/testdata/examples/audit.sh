#!/bin/sh
# Writes every call down, as one line of JSON, and changes nothing.
#
#   tool_views:
#     everything:
#       include_all: true
#       hooks: {post_call: {command: [hooks/audit.sh, audit.log]}}

cat >> "$1"
echo >> "$1"
echo '{}'
