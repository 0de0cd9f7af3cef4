package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
)

// content is as many bytes as asked for, which their number decides.
func content(bytes int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{byte(bytes), byte(bytes >> 8), byte(bytes >> 16)}), bytes)
}

// sum reads to the end: how many bytes came, and their SHA-256.
func sum(from io.Reader) (int64, string, error) {
	hash := sha256.New()
	read, err := io.Copy(hash, from)
	return read, hex.EncodeToString(hash.Sum(nil)), err
}
