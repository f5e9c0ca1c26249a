// Drives go-git: gogit clone URL DIRECTORY [DEPTH] | fetch DIRECTORY SPEC... | push DIRECTORY SPEC...
//
// A SPEC is a refspec. Prints what the library says went wrong, and then ends with 1.
package main

import (
	"fmt"
	"os"
	"strconv"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
)

func specs(words []string) []config.RefSpec {
	var specs []config.RefSpec
	for _, word := range words {
		specs = append(specs, config.RefSpec(word))
	}
	return specs
}

func run(verb string, words []string) error {
	if verb == "clone" {
		options := &git.CloneOptions{URL: words[0]}
		if len(words) > 2 {
			options.Depth, _ = strconv.Atoi(words[2])
		}
		_, err := git.PlainClone(words[1], true, options)
		return err
	}
	repository, err := git.PlainOpen(words[0])
	if err != nil {
		return err
	}
	if verb == "fetch" {
		err = repository.Fetch(&git.FetchOptions{RefSpecs: specs(words[1:]), Force: true})
	} else {
		err = repository.Push(&git.PushOptions{RefSpecs: specs(words[1:])})
	}
	if err == git.NoErrAlreadyUpToDate {
		return nil
	}
	return err
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Println("problem:", err)
		os.Exit(1)
	}
}
