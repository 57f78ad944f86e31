from softdlm.cli.main import main

main()
