from softdlm.cli import main

main()
