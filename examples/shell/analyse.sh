#!/bin/sh
read -r task
title=$(printf '%s' "$task" | sed 's/.*"title":"\([^"]*\)".*/\1/')
echo "@progress 20 reading $title"
echo "@ask how How shall I do it?"
while read -r verb key text; do
    case $verb in answer) break ;; declined) echo "@fail nobody said how"; exit ;; esac
done
echo "@progress 80 nearly there"
printf '%s is done, %b\n' "$title" "$text"
